"""Process 1 of every container: lets a command join the job, and reports to Kubernetes how it ended.

Only the standard library and `tpujob_contract`, and Python 3.9 or newer: the launcher runs inside users' images.
`git` is the exception: it runs in the operator's image, and needs the extra `git`.
"""
