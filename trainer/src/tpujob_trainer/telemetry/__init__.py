"""What people and machines are told: report, metrics, goodput, trackers.

- `attempts`: What became of each attempt, kept beside the checkpoint: readable when the pods are gone.
- `compile_cache`: Compiled programs kept beside the checkpoint, so that a restart does not compile again; and what
  compiling costs.
- `goodput`: Where the time of a run went, over all its attempts: arithmetic on reports, and one small file beside the
  checkpoint.
- `memory_profiles`: What fills the devices' memory, now and then between two steps; each process keeps its newest
  profiles.
- `metrics`: Every Prometheus metric of the trainer, by name. Dashboards and rules are checked against `NAMES`.
- `page`: The page at `/` for people: what this process does, in one HTML document without scripts.
- `process`: How long this process has been there, its interpreter and imports included; and the memory it holds.
  Linux.
- `profiler`: Profiles of a run that goes on: some steps traced for XProf, and what fills the devices' memory after
  them.
- `report`: What this process would say about itself: the facts behind /report, the attempt's file and the gauges of
  /metrics.
- `samples_file`: `samples.jsonl` in the checkpoint directory: the texts that the model wrote, one line for each step.
- `server`: GET /report, /metrics and the page of this process, on daemon threads, for the operator and for Prometheus.
- `tensorboard`: TensorBoard: event files, one for each attempt in one folder, which TensorBoard shows as one run.
- `trackers`: Experiment trackers: told by process 0 alone, in a thread each, and never in the way of the training.
- `wandb`: Weights & Biases: one run there for all attempts, by an id that is kept beside the checkpoint.
"""
