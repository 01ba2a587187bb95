"""The mutated modules, the tests that judge each, and the equivalent mutants.

Pure modules are mutated: from values to values, without a clock, storage, network or accelerator. Tables of facts
(`topology.tables`, `exit_codes`, `metrics`) are left out: a test of a fact only repeats it.
"""

CONTRACT = ("tests/contract/test_",)
DECIDE = ("tests/operator/decide/",)
JOBSET = ("tests/resource/jobset/",)
API = ("tests/resource/api/",)
OBSERVE = ("tests/operator/observe/", "tests/operator/decide/test_attempt_cause.py")
MANIFEST = ("tests/trainer/data/manifest/",)
STREAM = (
    "tests/trainer/data/stream/",
    "tests/trainer/data/text/test_row_template.py",
    "tests/trainer/data/text/test_columns.py",
)
CHECKPOINT = ("tests/trainer/checkpoint/",)

TARGETS: dict[str, tuple[str, ...]] = {
    "tpujob_contract.batch_rows": CONTRACT,
    "tpujob_contract.environment": CONTRACT,
    "tpujob_contract.field_rules": CONTRACT,
    "tpujob_contract.reports.first_end": CONTRACT,
    "tpujob_contract.reports.in_place": CONTRACT,
    "tpujob_contract.kubernetes_names": CONTRACT,
    "tpujob_contract.process_ids": CONTRACT,
    "tpujob_contract.reports.report": CONTRACT,
    "tpujob_contract.reports.termination_message": CONTRACT,
    "tpujob_launcher.supervise.ending": ("tests/launcher/test_ending.py",),
    "tpujob_launcher.reports.frameworks": (
        "tests/launcher/test_frameworks.py",
        "tests/launcher/test_maxtext.py",
    ),
    "tpujob_launcher.peers.round": ("tests/launcher/peers/test_round.py", "tests/launcher/peers/test_round_ends.py"),
    "tpujob_launcher.peers.verdict": ("tests/launcher/peers/test_verdict.py",),
    "tpujob_resource.messages.error_messages": API,
    "tpujob_resource.rules.limits": API,
    "tpujob_resource.rules.load": API,
    "tpujob_resource.models.scheduling": API,
    "tpujob_resource.rules.slice_counts": API,
    "tpujob_resource.models.spec": (*API, *JOBSET),
    "tpujob_resource.models.phases": DECIDE,
    "tpujob_resource.models.status": DECIDE,
    "tpujob_resource.rules.trainer_rules": API,
    "tpujob_resource.rules.validation": API,
    "tpujob_resource.rules.computed": API,
    "tpujob_operator.decide.causes.attempt_cause": DECIDE,
    "tpujob_operator.decide.checks.between_attempts": DECIDE,
    "tpujob_operator.decide.checks.capacity": DECIDE,
    "tpujob_operator.decide.chain": DECIDE,
    "tpujob_operator.decide.checks.completion": DECIDE,
    "tpujob_operator.decide.checks.creation": DECIDE,
    "tpujob_operator.decide.causes.evidence": DECIDE,
    "tpujob_operator.decide.causes.first_failure": DECIDE,
    "tpujob_operator.decide.in_place": DECIDE,
    "tpujob_operator.decide.checks.node_avoidance": DECIDE,
    "tpujob_operator.decide.causes.node_failures": DECIDE,
    "tpujob_operator.decide.place": DECIDE,
    "tpujob_operator.decide.record.progress": DECIDE,
    "tpujob_operator.decide.checks.queue": DECIDE,
    "tpujob_resource.messages.remedies": DECIDE,
    "tpujob_operator.decide.checks.resize": DECIDE,
    "tpujob_operator.decide.causes.restart_accounting": DECIDE,
    "tpujob_operator.decide.checks.running": DECIDE,
    "tpujob_operator.decide.checks.slice_count": DECIDE,
    "tpujob_operator.decide.checks.stall": DECIDE,
    "tpujob_operator.decide.record.status": DECIDE,
    "tpujob_operator.decide.record.status_conditions": DECIDE,
    "tpujob_operator.decide.verdict": DECIDE,
    "tpujob_resource.jobset.build": JOBSET,
    "tpujob_resource.jobset.environment": JOBSET,
    "tpujob_resource.jobset.expand": JOBSET,
    "tpujob_resource.jobset.failure_policy": JOBSET,
    "tpujob_resource.jobset.access": JOBSET,
    "tpujob_resource.jobset.pod": JOBSET,
    "tpujob_resource.jobset.volumes": JOBSET,
    "tpujob_operator.observe.free_slices": OBSERVE,
    "tpujob_operator.observe.from_objects": OBSERVE,
    "tpujob_operator.observe.pod_state": OBSERVE,
    "tpujob_operator.observe.report": OBSERVE,
    "tpujob_operator.observe.state": (*OBSERVE, *DECIDE),
    "tpujob_operator.observe.terminations": OBSERVE,
    "tpujob_operator.observe.untrusted": OBSERVE,
    "tpujob_resource.topology.parse": ("tests/resource/topology/",),
    "tpujob_resource.topology.machines": ("tests/resource/topology/", *JOBSET),
    "tpujob_resource.topology.suggestions": ("tests/resource/topology/",),
    "tpujob_trainer.checkpoint.layout": CHECKPOINT,
    "tpujob_trainer.checkpoint.retention": CHECKPOINT,
    "tpujob_trainer.checkpoint.save_decision": CHECKPOINT,
    "tpujob_trainer.data.manifest.permutation": MANIFEST,
    "tpujob_trainer.data.manifest.plan": MANIFEST,
    "tpujob_trainer.data.manifest.listing": MANIFEST,
    "tpujob_trainer.data.manifest.table": MANIFEST,
    "tpujob_trainer.data.stream.lane": STREAM,
    "tpujob_trainer.data.stream.packing": STREAM,
    "tpujob_trainer.data.stream.position": STREAM,
    "tpujob_trainer.data.stream.rows": STREAM,
    "tpujob_trainer.data.text.chat": (
        "tests/trainer/data/text/test_chat.py",
        "tests/trainer/data/text/test_row_template.py",
        "tests/trainer/data/text/test_columns.py",
    ),
    "tpujob_trainer.data.text.columns": ("tests/trainer/data/text/", "tests/trainer/data/stream/test_reading.py"),
    "tpujob_trainer.data.text.row_template": ("tests/trainer/data/text/test_row_template.py",),
    "tpujob_trainer.corpus.extract.units": ("tests/trainer/corpus/extract/test_units.py",),
    "tpujob_trainer.model.mesh.choice": ("tests/trainer/model/test_mesh_choice.py",),
    "tpujob_trainer.telemetry.goodput": ("tests/trainer/telemetry/test_goodput.py",),
    "tpujob_trainer.train.nonfinite": ("tests/trainer/train/test_nonfinite.py",),
    "tpujob_trainer.train.save_policy": (
        "tests/trainer/train/test_save_policy.py",
        "tests/trainer/train/test_step_flags.py",
    ),
    "tpujob_trainer.corpus.workers.states": ("tests/trainer/corpus/workers/test_choice.py",),
}
"""Module to path prefixes of its tests: those of the same package, so that a mutant takes a few seconds."""

LANE = "tpujob_trainer.data.stream.lane"
PLAN = "tpujob_trainer.data.manifest.plan"
ALARM = "tpujob_trainer.checkpoint.save_decision"
ACCOUNTING = "tpujob_operator.decide.causes.restart_accounting"
PAUSE = "return min(LONGEST_PAUSE_SECONDS, first * 2.0 ** min(restarts_without_progress - 2, 30))"
GOODPUT = "tpujob_trainer.telemetry.goodput"
WRITE = 'bucket.write(FILE, json.dumps(content, indent=1) + "\\n")'
BEGUN = 'begun = int(ends.searchsorted(0, side="right"))'
LEFT = 'left = max(0, int(np.searchsorted(buffer.starts, at, side="right")) - 1)'
AFFORDABLE = "affordable = max(1, config.buffer_bytes // (2 * len(units) * max(1, manifest.largest_unit_bytes)))"
DIVISORS = "lanes = max((number for number in _divisors(batch_size) if number <= limit), default=1)"

EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    (
        LANE,
        LEFT,
        "0",
        "-1",
    ): "a document begins at the first token; an empty buffer has no starts",
    (LANE, LEFT, "1", "2"): "one document more is kept, whose tokens were all delivered",
    (LANE, BEGUN, "0", "-1"): "before its first input in these batches a lane is where the input is, by another name",
    (PLAN, AFFORDABLE, "1", "0"): "without a lane that fits there is one lane; units of no bytes do not exist",
    (PLAN, DIVISORS, "1", "0"): "1 divides every batch, and the limit is at least 1",
    (
        GOODPUT,
        'if last and last["attempt_steps"] and (last["committed_step"] or 0) > step:',
        "(last['committed_step'] or 0) > step",
        "(last['committed_step'] or 0) >= step",
    ): "from the last commit on nothing is lost",
    (ALARM, "self._is_repeated = False", "False", "True"): "`failed` sets it before `check` looks at it",
    (
        "tpujob_contract.batch_rows",
        "for context in range(2, of_slice // expert + 1):",
        "2",
        "1",
    ): "with fewer rows than devices, 1 never gives each device a row",
    (
        "tpujob_contract.batch_rows",
        "for context in range(2, of_slice // expert + 1):",
        "of_slice // expert",
        "of_slice * expert",
    ): "what is larger does not divide the devices",
    (
        "tpujob_contract.batch_rows",
        "for context in range(2, of_slice // expert + 1):",
        "1",
        "2",
    ): "what is larger does not divide the devices",
    (ACCOUNTING, PAUSE, "30", "31"): "the pause is the longest one long before",
    (ACCOUNTING, PAUSE, "30", "29"): "the pause is the longest one long before",
    (GOODPUT, WRITE, "1", "2"): "how the file is laid out, not what it says",
    (GOODPUT, WRITE, "1", "0"): "how the file is laid out, not what it says",
    (
        "tpujob_resource.models.scheduling",
        'str, StringConstraints(min_length=1, max_length=63, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")',
        "1",
        "0",
    ): "the pattern wants a letter",
    (
        "tpujob_resource.rules.slice_counts",
        "return True",
        "True",
        "False",
    ): "of a wrong accelerator nothing is said but that, and of a command a test knows",
    (
        "tpujob_trainer.data.manifest.permutation",
        "middle = (low + high + 1) // 2",
        "1",
        "2",
    ): "any number above low and up to high finds the same one",
    (
        "tpujob_operator.observe.free_slices",
        "return 0",
        "0",
        "-1",
    ): "both are less than a slice needs",
    (
        "tpujob_operator.decide.checks.slice_count",
        "if slices > jobset.slices:",
        "slices > jobset.slices",
        "slices >= jobset.slices",
    ): "a change is one to another number",
    (
        "tpujob_operator.observe.terminations",
        "first = (status.internal.booked_restarts or 0) - 1",
        "0",
        "1",
    ): "no attempt has a number below 0",
    (
        "tpujob_trainer.data.manifest.listing",
        'if listing.format.elements == "files" or count <= 1 < file.size:',
        "1",
        "2",
    ): "a file that is read whole counts as 1 element, and any other as the bytes that it has",
    (
        "tpujob_operator.decide.checks.completion",
        "if phase is None or phase not in TERMINAL:",
        "phase is None or phase not in TERMINAL",
        "phase not in TERMINAL",
    ): "None is not terminal; the first half is for the type checker",
    (
        "tpujob_resource.rules.limits",
        "chips = job.hosts * accelerator.chips_per_host if accelerator.is_tpu else 0",
        "0",
        "-1",
    ): "no limit is below 1",
    (
        "tpujob_trainer.data.stream.packing",
        "is_learned[rows[kept]] = span.learned[1:].reshape(-1, length)[kept]",
        "1",
        "2",
    ): "the sampled 1 is that of -1: numpy takes any negative size for the one that is missing",
    (
        "tpujob_trainer.data.text.chat",
        "through = text if at + 1 == len(messages) else self._render(messages[: at + 1], tools).text",
        "text if at + 1 == len(messages) else self._render(messages[:at + 1], tools).text",
        "self._render(messages[:at + 1], tools).text",
    ): "a shortcut: there all messages are rendered, which is the text",
    (
        "tpujob_operator.decide.checks.running",
        "return not was_at_it and jobset.restarts <= (observed.status.internal.booked_restarts or 0)",
        "0",
        "-1",
    ): "without a restart of the JobSet there is none to show",
}
"""Module, line, expression and mutant → why no test can distinguish them."""
