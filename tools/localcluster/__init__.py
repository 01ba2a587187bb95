"""A real Kubernetes on this machine: behind `make cluster`, and behind the tests.

Everything is upstream code, built from the Go modules in `programs/`.

Without a node: etcd, kube-apiserver, kube-controller-manager and the JobSet controller run as ordinary processes on
loopback, without root or containers. `pods` plays the kubelet's part on pod status where a test needs it.

With a node: the same, and a kubelet on a containerd of its own, a bridge, a name server, a storage emulator,
Prometheus, and our operator installed by our chart. Needs Linux, root and Debian packages.

    binaries -> toolchain                                    what is run, built on first use
    control_plane, jobset, kueue -> processes                what runs
    background -> one_machine -> kubelet, containerd, network, names, storage, prometheus
                                                             a cluster with a node
    product -> product_images, node_images -> archive        what is installed on it
    undo                                                     how nothing of it stays
"""
