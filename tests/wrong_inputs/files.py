"""Files that are no job, with words of the refusal by the command line; none of them reaches an API server."""

import json

HEAD = "apiVersion: tpujob.dev/v1beta1\nkind: TpuTrainingJob\nmetadata: {name: job}\n"
RIGHT = (
    HEAD
    + "spec: "
    + json.dumps(
        {
            "accelerator": "cpu:2x1",
            "trainer": {"model": {"preset": "tiny"}, "data": {"path": "data/*.parquet"}, "steps": 10},
        }
    )
)


BOMB = (
    "{name: job, a0: &a0 [x, x],\n"
    + ",\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))
    + "}"
)
"""Nine levels of nine aliases, 400 bytes: they stand for 400 million values."""


def _named(metadata: str) -> str:
    return RIGHT.replace("metadata: {name: job}", f"metadata: {metadata}")


FILES: dict[str, tuple[str, str]] = {
    "a field beside spec": (f"{HEAD}accelerator: v5e-16\n", "did you mean spec.accelerator?"),
    "an empty file": ("", "is empty"),
    "comments alone": ("# nothing\n", "is empty"),
    "two jobs": (f"{RIGHT}\n---\n{RIGHT}", "has 2 documents (TpuTrainingJob, TpuTrainingJob)"),
    "a namespace and a claim": ("kind: Namespace\n---\nkind: PersistentVolumeClaim\n", "has 2 documents (Namespace, "),
    "a word beside the job": (f"{RIGHT}\n---\nword\n", "not a mapping"),
    "a template": (_named("{name: {{ .Release.Name }}}"), "a template ({{ … }}) is no job, render it first"),
    "a number of two readings": (_named("\n  name: job\n  labels: {steps: 010}"), "job.yaml:5: not YAML: 010 is read"),
    "a word of two readings": (_named("{name: on}"), "on is read in two ways, by YAML 1.1 (kubectl) and YAML 1.2"),
    "a name that is made of words": (_named("{generateName: My Job}"), "metadata.name: "),
    "a list": ("- a\n- b\n", "not a mapping"),
    "a word": ("job\n", "not a mapping"),
    "wrong indentation": (f"{HEAD}spec:\n  accelerator: v5e-16\n   slices: 2\n", "indented more or less"),
    "a tab": (f"{HEAD}spec:\n\taccelerator: v5e-16\n", "indent with spaces"),
    "no space after a colon": (f"{HEAD}spec:\n  accelerator:v5e-16\n  slices: 2\n", "no space after a colon"),
    "a number of 5,000 digits": (
        _named("{name: job, labels: {a: 1" + "0" * 5000 + "}}"),
        "a number or a date is wrong",
    ),
    "a number of 9,000 hexadecimal digits": (
        _named("{name: job, labels: {a: 0x" + "f" * 9000 + "}}"),
        "a number or a date is wrong (a whole number of more than 308 digits)",
    ),
    "half of a character": (f'{HEAD}spec: {{image: "\\ud83d"}}\n', "half of a character; write both halves"),
    "an open bracket": (f"{HEAD}spec: {{accelerator: v5e-16\n", "not YAML"),
    "an open quote": (f'{HEAD}spec: {{accelerator: "v5e-16}}\n', "not YAML"),
    "a key twice": (f"{HEAD}spec:\n  slices: 1\n  slices: 2\n", "not YAML"),
    "an alias of itself": (_named("{name: job, &a annotations: &b {c: *b}}"), "an alias (*b) stands inside"),
    "aliases of aliases": (_named(BOMB.replace("\n", " ")), "aliases such as *"),
    "a long text 2,000 times": (
        _named("{name: job, a: &t " + "x" * 1000 + ", b: [" + ", ".join(["*t"] * 2000) + "]}"),
        "aliases such as *t make more of it than any job holds",
    ),
    "as many levels as aliases": (
        _named("{name: job, a0: &a0 x, " + ", ".join(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 150)) + "}"),
        "nested too deeply",
    ),
    "150 levels": (_named("{name: job, a: " + "[" * 150 + "]" * 150 + "}"), "nested too deeply"),
    "a date that is none": (
        _named("{name: job, annotations: {since: 2024-13-45}}"),
        "put it in quotes",
    ),
    "another kind": ("apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\n", "kind: Job is not TpuTrainingJob"),
    "a kind without end": (f"apiVersion: v1\nkind: {'Tpu ' * 1000}\n", "is not TpuTrainingJob; name the file of a job"),
    "no kind": (RIGHT.replace("kind: TpuTrainingJob\n", ""), "kind: is missing"),
    "another version": (RIGHT.replace("v1beta1", "v9"), "apiVersion"),
    "no spec": (HEAD, "spec: is missing"),
    "a spec of words": (f"{HEAD}spec: train\n", "spec: "),
    "no metadata": (RIGHT.replace("metadata: {name: job}\n", ""), "metadata: is missing"),
    "no name": (_named("{}"), "metadata.name: is missing"),
    "an empty name": (_named('{name: ""}'), "metadata.name"),
    "capitals": (_named("{name: MyJob}"), "metadata.name: "),
    "an underscore": (_named("{name: my_job}"), "metadata.name: "),
    "a dash at the end": (_named("{name: job-}"), "metadata.name: "),
    "a digit first": (_named("{name: 1job}"), "metadata.name: "),
    "a dot": (_named("{name: my.job}"), "metadata.name: "),
    "a name too long": (_named(f"{{name: {'a' * 50}}}"), "has more than 49 characters"),
    "a number": (_named("{name: 7}"), "metadata.name: 7"),
}
