"""A real Kubernetes control plane on this machine, for tests.

etcd, kube-apiserver, kube-controller-manager and the JobSet controller run as ordinary processes on loopback, without
root, containers or nodes. Everything is the upstream code, built from the Go modules in `tools/`. There is no kubelet:
`pods` plays its part on pod status where a test needs it.

    binaries -> toolchain                    what is run, built on first use
    control_plane, jobset -> processes       what runs
    fixtures                                 what tests use
"""
