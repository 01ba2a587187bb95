"""The resource as people write it: fields, rules, messages, status and conditions.

- `code_rules`: Rules for `spec.code`: an archive with its digest, or a repository with a commit. Each yields
  sentences.
- `conditions`: Everything that a TpuTrainingJob's status can say: condition types, reasons, their sentences
  and advice, in one list.
- `container_rules`: Rules for what runs in a pod: image, arguments, environment, storage, amounts. Each yields
  sentences.
- `error_messages`: What the model layer found wrong, as sentences with the field as the user wrote it.
- `fields`: The shape that all parts of a resource share, and the kinds of value that occur more than once.
- `job`: A TpuTrainingJob as typed values, each field well-formed; `load.load_job` checks it as a whole.
- `limits`: How large a job may be: what the API server stores, and what the administrator allows.
- `load`: The custom resource: the only place where a manifest becomes a job.
- `placement_rules`: Rules for where slices lie: Kueue's topology levels, sub-slices and super-slices. Each yields
  sentences.
- `patterns`: What each pattern of a field asks for, in words: a person who wrote a wrong value reads these, not the
  pattern.
- `scheduling`: Fields of `spec` that choose machines: how they are paid for, where they lie, which taints are
  tolerated.
- `schema_errors`: What jsonschema finds wrong with a value, as sentences with the field as the user wrote it.
- `schema_fit`: Whether a value is plainly valid by a JSON Schema: a quick yes, so that a right job needs no
  jsonschema.
- `shared_units`: Which jobs have workers that share a list of units, and so may come and go.
- `slice_counts`: With how many slices a job may run: `spec.slices`, or fewer where `spec.minSlices` allows it.
- `spec`: `spec` of a TpuTrainingJob: what a person may ask for. The docstrings below are what `kubectl explain`
  shows.
- `status`: `status` of a TpuTrainingJob: what the operator saw, in the words of `kubectl get`. Written by the
  operator only.
- `stored`: What the API server has stored, read as far as it can be: no decision waits for a valid spec or status.
- `trainer_rules`: Rules between fields of the `trainer` block, and between it and the accelerator. Each yields
  sentences.
- `trainer_schema`: The `trainer` block against the schema that the trainer publishes of its own configuration.
- `volume_rules`: Rules for volumes, and for what must lie on one that lasts. Each yields sentences.
- `volumes`: Volumes of `spec`: what is mounted into every pod's main container, and where.
- `warnings`: What is allowed in a job and probably not meant. Each rule yields sentences.
- `validation`: What a model of single fields cannot say: rules between fields, and arithmetic. Each rule yields
  sentences.
"""
