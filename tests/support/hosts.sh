# Sourced by tests that need two hosts: two network namespaces joined by a veth pair, and an agent that mpirun takes for
# ssh. Root only; `two_hosts` returns 77 where this machine does not allow it.
host_a=10.77.0.1 host_b=10.77.0.2
net=ddp$$ # several such pairs may live beside each other

remove_hosts() {
  ip netns del ${net}a 2>/dev/null
  ip netns del ${net}b 2>/dev/null
}

two_hosts() {
  [ "$(id -u)" = 0 ] && command -v ip >/dev/null && command -v mpirun >/dev/null || return 77
  remove_hosts
  ip netns add ${net}a 2>/dev/null && ip netns add ${net}b 2>/dev/null || return 77
  ip link add ${net}va netns ${net}a type veth peer name ${net}vb netns ${net}b 2>/dev/null || return 77
  ip -n ${net}a addr add $host_a/24 dev ${net}va && ip -n ${net}b addr add $host_b/24 dev ${net}vb || return 77
  for side in a b; do
    ip -n $net$side link set lo up
    ip -n $net$side link set ${net}v$side up
  done
  cat >"$scratch/agent" <<AGENT
#!/bin/sh
# agent [options] HOST COMMAND...: what ssh would do
while [ "\${1#-}" != "\$1" ]; do shift; done
host=\$1
shift
case \$host in $host_a) side=a ;; $host_b) side=b ;; *) exit 255 ;; esac
exec ip netns exec $net\$side unshare -u sh -c "hostname ddp-\$side; \$*"
AGENT
  printf '#!/bin/sh\nexec ip netns exec %s unshare -u sh -c \047hostname ddp-a; exec "$@"\047 sh "$@"\n' ${net}a >"$scratch/on_a"
  chmod +x "$scratch/agent" "$scratch/on_a"
  export OMPI_MCA_plm_rsh_agent="$scratch/agent" OMPI_MCA_btl=self,vader,tcp OMPI_MCA_btl_tcp_if_include=10.77.0.0/24 \
    OMPI_MCA_oob_tcp_if_include=10.77.0.0/24
}

# "$scratch/on_a" COMMAND... runs it on the first host, as a person logged in there does. The hosts have names of their
# own: with one name Open MPI takes them for one host in some places and for two in others.
