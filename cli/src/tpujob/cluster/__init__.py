"""Jobs on a cluster: reading, changing and describing them.

- `client`: The API server of the kubeconfig, as plain JSON objects.
- `describe`: A job in sentences: where it stands, why, what happened, what to do. Pure.
- `doctor`: What a cluster needs before a job can run, each with what is there and what to do.
- `executing`: A command on several hosts of a job at once, line by line, with its exit codes.
- `logs`: The logs of a job's hosts, one by one or merged by time, the first failure first.
- `probe`: Tries from a pod what only a pod can tell: that a job's image starts, and that its account may use its
  bucket.
- `submitting`: Puts a job on the cluster, checked by the server before anything is made.
- `table`: Jobs as a table for people. Pure.
- `watch`: Follows a job to its end, a line for each change.
"""
