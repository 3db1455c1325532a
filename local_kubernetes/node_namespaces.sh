# Run once, by root, inside the node's fresh mount, network, PID and IPC namespaces. Everything made here vanishes with
# the last process inside, so nothing has to be undone.
set -eu

# Pods may ask for mount propagation, which needs a shared root; unshare has cut it off from the machine's own.
mount --make-rshared /

# Sockets, CNI's network namespaces and locks of this node only.
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/lock /run/netns

# Fixed paths of the kubelet, of CNI's library and of the pods' logs.
mount --bind "$STATE/kubelet" /var/lib/kubelet
mount --bind "$STATE/cni-results" /var/lib/cni
mount --bind "$STATE/var-log" /var/log

# The node's address sits on a bridge without ports. There is no default route: nothing can leave.
ip link set lo up
ip link add node0 type bridge
ip address add "$NODE_ADDRESS/32" dev node0
ip link set node0 up
ip route add "$SERVICE_RANGE" dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward
# Pods that reach each other through a Service share a bridge, which must then show its frames to iptables.
bridge=/proc/sys/net/bridge/bridge-nf-call-iptables
[ -e $bridge ] || modprobe br_netfilter || true
[ ! -e $bridge ] || echo 1 >$bridge
