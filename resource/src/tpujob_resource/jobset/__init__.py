"""From a job to its JobSet and the objects beside it; pure functions of job and settings.

- `build`: From a job to its JobSet. Pure and total: the same job and settings give the same bytes.
- `environment`: The environment of a pod: constants and field references only, so that pods need no access to the
  API.
- `expand`: The pods of a JobSet, as its controller and the Job controller would make them, environment resolved.
- `failure_policy`: Which end of a pod means what: the exit codes of the contract, written as Kubernetes policies.
- `multislice_network`: More than one network card between slices: an administrator's choice, off by default.
- `network_policy`: Who may connect to a job's pods: the job itself to everything, the operator and the monitoring to
  its reports.
- `scheduling`: Where a job's pods may run: node labels and taints, one node pool for a slice, or what Kueue is asked
  for instead.
- `volumes`: Volumes of a pod, and where its main container mounts them: the operator's own, then those of the job.
- `pod`: The pod of one host: restricted profile, no token, all chips of the machine, the launcher before the command.
"""
