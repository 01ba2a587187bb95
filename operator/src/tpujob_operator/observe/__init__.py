"""From the cluster to one typed snapshot of a job.

- `cache`: What the watches have told of jobs, JobSets and pods: only what decisions need, so that thousands fit.
- `events`: What Kubernetes Events say about a job's pods and JobSet, read when something is missing.
- `free_slices`: For how many more slices a JobSet would find free machines now: nodes that its pods fit on, read at
  intervals.
- `from_objects`: JobSets and pods as the API server shows them, read into the values that decisions are made of.
- `gather`: Everything that a decision about one job needs: from the cache, or read anew. Nothing is decided here.
- `missing_rights`: Rights that this operator lacks, because its image is newer than its chart: said once, and asked
  for seldom.
- `nodes`: The nodes of failed attempts: a lost host shows up first as crashes elsewhere, and later as a node that is
  not well.
- `pod_identity`: Which host of which JobSet a pod is. Labels are anybody's to write, so what JobSet and Job set must
  agree.
- `pod_state`: One pod as far as decisions need it: what is kept of thousands of them.
- `queue_positions`: Where jobs stand in their queues, in the order in which Kueue tries them.
- `report`: What process 0 says of itself: while it runs in its /report, at its end in its termination message.
- `report_client`: What a process says of itself, asked over HTTP once.
- `report_poller`: The reports of all running jobs, read by a poller of its own: passes take the last one and never
  wait.
- `services`: Whose the Service is by which the hosts of a job find each other; read seldom while the job runs.
- `state`: What was seen of one TpuTrainingJob and its children: plain values, read once.
- `terminations`: How containers ended, kept from the watch's events: after a failure the pods are readable for
  seconds only.
- `untrusted`: Values that somebody else's process or pod supplies, made safe to keep: text, JSON, counts in labels.
- `workloads`: Why Kueue has not admitted a job: its Workload, read at intervals while the job waits.
"""
