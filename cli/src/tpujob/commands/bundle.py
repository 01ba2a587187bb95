"""`tpujob bundle`."""

from pathlib import Path
from typing import Annotated

import typer

from tpujob.commands.options import problems_on_stderr
from tpujob.output.errors import CommandError


def bundle(
    out: Annotated[Path | None, typer.Option(help="Folder to create, or an unfinished bundle to complete.")] = None,
    verify: Annotated[Path | None, typer.Option(metavar="BUNDLE", help="Check a bundle instead of making one.")] = None,
    source: Annotated[
        Path | None, typer.Option(help="Checkout of tpujob; by default the one that this runs from.")
    ] = None,
    python: Annotated[
        list[str] | None, typer.Option(help="Python version to download wheels for; repeatable. [3.12]")
    ] = None,
    wheels: Annotated[
        list[Path] | None, typer.Option(help="Folder of wheels to reuse, such as that of an older bundle.")
    ] = None,
    base_image: Annotated[
        str | None, typer.Option(help="Base image for builds at the site; by default the Dockerfile's.")
    ] = None,
    image: Annotated[
        list[str] | None, typer.Option(help="Another image to include, from docker, podman or buildah here.")
    ] = None,
    images: Annotated[
        list[Path] | None, typer.Option(help="Image archive to include instead of this machine's images.")
    ] = None,
    packages: Annotated[
        Path | None, typer.Option(help="Requirements file with hashes, for spec.packages of your jobs.")
    ] = None,
    no_images: Annotated[bool, typer.Option("--no-images", help="Include no images.")] = False,
) -> None:
    """Pack what a site without a network needs.

    One folder of images, wheels, chart, Dockerfile and checksums. Needs a checkout, and docker, podman or buildah with
    the images built. After an interruption, run it again to continue. The folder's README.md has the commands that
    load, install and build.
    """
    from tpujob.bundle.checksums import verify as problems_of
    from tpujob.bundle.making import BundleRequest, make_bundle

    with problems_on_stderr():
        if (out is None) == (verify is None):
            raise CommandError("name a folder to make with --out, or a bundle to check with --verify")
        if verify is not None:
            problems = problems_of(verify)
            if problems:
                raise CommandError(*problems, exit_code=1)
            typer.echo(f"{verify}: every file is as it should be")
            return
        assert out is not None
        request = BundleRequest(
            out=out,
            source=source,
            pythons=tuple(python or ["3.12"]),
            wheels=tuple(wheels or []),
            base_image=base_image,
            more_images=tuple(image or []),
            archives=tuple(images or []),
            with_images=not no_images,
            packages=packages,
        )
        make_bundle(request, typer.echo)
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    typer.echo(f"{out}: {size / 1e9:.1f} GB; {out / 'README.md'} says what to do with it")
