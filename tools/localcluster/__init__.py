"""A real Kubernetes on this machine, for `make cluster` and for the tests.

Everything is upstream code, built from the Go modules in `programs/`.

Without a node: etcd, kube-apiserver, kube-controller-manager and the JobSet controller run as ordinary processes on
loopback, without root or containers. `pods` writes the pod status that a kubelet would, for tests that need it.

With a node: the same, plus a kubelet with its own containerd, a bridge, a name server, a storage emulator, Prometheus,
and our operator installed by our chart. Needs Linux, root and Debian packages.

    binaries -> toolchain                                    the programs, built on first use
    control_plane, jobset, kueue -> processes                the processes of a control plane
    background -> one_machine -> kubelet, containerd, network, names, storage, prometheus
                                                             a cluster with a node
    product -> product_images, node_images -> archive        the images and the chart installed on it
    undo                                                     the removal of everything it changed
"""
