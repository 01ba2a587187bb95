"""From a snapshot to a decision; pure functions.

- `attempt_cause`: Why an attempt failed: a crash of the user's, a disruption, or nobody knows.
- `between_attempts`: When a job may start anew as another incarnation, and what that incarnation keeps.
- `capacity`: What a pod without a node waits for, and whether waiting is enough: events about it, in plain words.
- `chain`: From what was seen to what to do: pure, so that everything interesting about the operator can be tested as
  a table.
- `completion`: Verdicts on the ends of a job whose JobSet is recorded; `chain.CHAIN` puts them in order.
- `creation`: Verdicts on the way to the one JobSet of a job; `chain.CHAIN` puts them in order and says why.
- `disruption_record`: What was taken away in an attempt, kept in status as evidence.
- `first_failure`: Which host failed first, of those that anybody saw: the job's failure as status shows it.
- `missing_machines`: Hosts of an attempt that have no machine, kept in status as evidence.
- `node_avoidance`: Verdicts that keep a job off a node on which it crashed twice; `chain.CHAIN` puts them in order.
- `node_failures`: How often a job crashed on each node: what keeps its pods off a node is decided from this.
- `progress`: What status says of progress: the figures that process 0 reports, and when they are written.
- `queue`: What `spec.suspend` means for a job with a queue.
- `remedies`: What somebody can do about it: by exit code of a host, and by what keeps a container from starting.
- `resize`: How many workers a running job should have: a change of `spec.workers` that its Job does not have yet.
- `restart_accounting`: How many crashes a job has had since it last got anywhere: what `restarts.crashes` limits.
- `running`: Verdicts on a job whose JobSet is recorded and has not ended; `chain.CHAIN` puts them in order.
- `slice_count`: Verdicts that change how many slices a job runs with; `chain.CHAIN` puts them in order.
- `stall`: Whether a job whose hosts all run gets anywhere. An alarm only: the trainer's own watchdog ends what hangs.
- `status`: The status that a verdict makes of the recorded one. What is unknown here (a newer operator's fields) is
  kept.
- `status_conditions`: The conditions that a verdict and a report make of the recorded ones.
- `verdict`: What a verdict on a job consists of: where the job is, why, and the one step that follows.
"""
