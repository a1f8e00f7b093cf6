/* A last word of a process that crashes: signal, address, thread, and a short backtrace on stderr. The
 * process then ends by the signal as it would have (exit status and core file are the same). */
#ifndef DDP_CORE_CRASH_H
#define DDP_CORE_CRASH_H

/* From now on, for SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, where nobody else (a sanitizer, the program)
 * catches them. The calling thread may even have run out of stack. Never fails: where it cannot be done, a
 * crash is silent as before. */
void ddp_crash_catch(void);

#endif
