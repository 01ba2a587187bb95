"""The API server's rules for `spec.accelerator`: the form, then the sizes and shapes of each generation."""

from tpujob_resource.crd.cel import Rule, rule, text, texts
from tpujob_resource.topology import suggestions
from tpujob_resource.topology.tables import GENERATIONS, SMALL_3D, Generation

_DIMENSION = "[1-9][0-9]{0,2}"


def accelerator_rules() -> list[Rule]:
    """Rules for `spec.accelerator`: the form, then the sizes and shapes of each generation."""
    # One anchor for all forms.
    flat = [g for g in GENERATIONS.values() if g.dimensions == 2]
    solid = [g for g in GENERATIONS.values() if g.dimensions == 3]
    forms = [f"cpu:{_DIMENSION}x{_DIMENSION}"]
    for generations, count in ((flat, 1), (solid, 2)):
        names = "|".join(g.name for g in generations)
        sized = "|".join(name for g in generations for name in (g.name, *g.aliases))
        forms += [f"({sized})-[1-9][0-9]{{0,4}}", f"({names}):{_DIMENSION}(x{_DIMENSION}){{{count}}}"]
    return [
        rule(
            f"self.matches({text('^(' + '|'.join(forms) + ')$')})",
            f"not an accelerator; allowed: {suggestions.FORMS}",
        ),
        *(_size_rule(g) for g in GENERATIONS.values()),
        *(_flat_shape_rule(g) for g in flat),
        *(_solid_shape_rule(g) for g in solid),
    ]


def _size_rule(generation: Generation) -> Rule:
    prefix = f"({'|'.join((generation.name, *generation.aliases))})"
    size, sizes = "int(self.split('-')[1])", f"[{', '.join(map(str, generation.sizes))}]"
    counted = suggestions.counts(generation) if generation.cores_in_size > 1 else "sizes count chips"
    return rule(
        f"!self.matches('^{prefix}-[1-9][0-9]{{0,4}}$') || {size} in {sizes}",
        expression=(
            f"'no {generation.name} slice has that size ({counted}); nearest: '"
            f" + {_nearest(generation, size, list(generation.sizes))}"
        ),
    )


def _nearest(generation: Generation, size: str, sizes: list[int]) -> str:
    """A CEL expression for the sizes closest to one: a decision tree, because list functions have no cost bound."""
    if len(sizes) == 1:
        return text(suggestions.nearest(generation, sizes[0] + 1))
    middle = len(sizes) // 2
    below, above = (_nearest(generation, size, part) for part in (sizes[:middle], sizes[middle:]))
    return f"({size} < {sizes[middle]} ? {below} : {above})"


def _flat_shape_rule(generation: Generation) -> Rule:
    shapes = [_shape(s) for s in generation.shapes]
    return rule(
        f"!self.startsWith('{generation.name}:') || self.split(':')[1] in {texts(shapes)}",
        f"no {generation.name} shape; shapes: {', '.join(shapes)}",
    )


def _solid_shape_rule(generation: Generation) -> Rule:
    small = [_shape(s) for s in generation.shapes if s in SMALL_3D or s == (1, 1, 1)]
    most = generation.max_cubes * 64
    numbers = "self.split(':')[1].split('x')"
    n = [f"int({numbers}[{i}])" for i in range(3)]
    conditions = [f"{numbers}.all(n, int(n) % 4 == 0)", f"{' * '.join(n)} <= {most}"]
    if not generation.any_order:
        conditions.append(f"{n[0]} <= {n[1]} && {n[1]} <= {n[2]}")
    order = "" if generation.any_order else ", smallest first"
    return rule(
        f"!self.matches('^{generation.name}:{_DIMENSION}(x{_DIMENSION}){{2}}$')"
        f" || self.split(':')[1] in {texts(small)} || ({' && '.join(conditions)})",
        f"no {generation.name} shape; shapes: {', '.join(small)}, "
        f"or up to {most} chips with every dimension a multiple of 4{order}",
    )


def _shape(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))
