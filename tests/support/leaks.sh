# Sourced, by sh too, before mpirun is started in a build with the address sanitizer; BUILD is the build folder. What is
# Open MPI's own is named in openmpi.lsan, and keep_plugins keeps its plugins loaded, so that they still have names when
# leaks are looked for. Their code has no frame pointers: calls are unwound the slow way.
if grep -qs '^DDP_SANITIZE:.*=.*address' "$BUILD/CMakeCache.txt"; then
  ASAN_OPTIONS=detect_leaks=1:handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigfpe=0
  ASAN_OPTIONS=$ASAN_OPTIONS:fast_unwind_on_malloc=0:verify_asan_link_order=0
  LSAN_OPTIONS=suppressions=$PWD/tests/support/openmpi.lsan:print_suppressions=0
  LD_PRELOAD=$(cd "$BUILD" && pwd)/tests/libkeep_plugins.so
  export ASAN_OPTIONS LSAN_OPTIONS LD_PRELOAD
fi
