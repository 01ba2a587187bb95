"""From the cluster to one typed snapshot of a job.

- `from_objects`: JobSets and pods as the API server shows them, read into the values that decisions are made of.
- `gather`: Reads everything that a decision about one job needs. Nothing is decided here.
- `nodes`: The nodes of failed attempts: a lost host shows up first as crashes elsewhere, and later as a node that is
  not well.
- `pod_identity`: Which host of which JobSet a pod is. Labels are anybody's to write, so what JobSet and Job set must
  agree.
- `report`: What process 0 says of itself: while it runs in its /report, at its end in its termination message.
- `report_client`: What process 0 of a running job says of itself, asked over HTTP at most every few seconds.
- `state`: What was seen of one TpuTrainingJob and its children: plain values, read once.
- `terminations`: How containers ended, kept from the watch's events: after a failure the pods are readable for
  seconds only.
- `untrusted`: Values that somebody else's process or pod supplies, made safe to keep: text, JSON, counts in labels.
"""
