"""What comes between the operator's last read and its write: edits, objects of others."""

from tests.operator.simulation.api import Object
from tests.operator.simulation.promises import JOBS
from tests.operator.simulation.world import NAME, World
from tpujob_contract import kubernetes_names
from tpujob_resource.jobset.build import spec_hash
from tpujob_resource.rules.load import load_job, without_status


def test_edit_before_the_jobset_is_recorded_is_what_runs() -> None:
    """The API server accepts it, since the job has no phase yet."""

    class Edited(World):
        """Somebody edits the job in the moment in which its JobSet is made."""

        def edit(self, plural: str, before: Object | None, after: Object | None) -> None:
            if plural == "jobsets" and before is None and not self.status and after is not None:
                self.server.update(JOBS, NAME, lambda found: found["spec"].update(args=["edited"]))

    async def story(world: World) -> None:
        world.create_job(args=["0"])
        await world.until(lambda world: bool(world.status.get("phase") == "Running"))
        jobset = world.server.get("jobsets", NAME)
        assert jobset is not None
        assert world.job["spec"]["args"] == ["edited"]
        wanted = spec_hash(load_job(without_status(world.job)))
        assert jobset["metadata"]["annotations"][kubernetes_names.SPEC_HASH] == wanted
        assert world.status["internal.specHash"] == wanted

    world = Edited()
    world.server.changed.append(world.edit)
    world.play(story)


def test_job_does_not_start_behind_a_service_of_others() -> None:
    """It is looked at before the JobSet is recorded: the same write may say that the job starts."""
    service = kubernetes_names.child_name(NAME)
    phases: list[str] = []

    def note(plural: str, _: Object | None, after: Object | None) -> None:
        if plural == JOBS and after is not None and "status" in after:
            phases.append(after["status"]["phase"])

    async def story(world: World) -> None:
        world.server.create("services", {"metadata": {"name": service, "labels": {}}})
        world.create_job()
        await world.until(lambda world: bool(world.status.get("conditions")))
        assert world.status["message"].startswith(f"Service {service} exists")
        assert set(phases) == {"Queued"}
        world.server.delete("services", service)
        await world.until(lambda world: bool(world.status["phase"] == "Running"))

    world = World()
    world.server.changed.append(note)
    world.play(story)
