"""Process 1 of every container: gives a command its place in the job, and Kubernetes a true account of its end.

Standard library and `tpujob_contract` only, and every Python from 3.9 on: it runs inside other people's images.
`git` is the exception: it runs in the operator's image, and needs the extra `git`.
"""
