"""One case: an entry, one of its samples, a mesh, placements of its tensors."""
import dataclasses
import re

MESHES = {"3": (3,), "4": (4,), "2x2": (2, 2)}
CASE = re.compile(r"^(?P<entry>[^#]+)#(?P<sample>\d+)@(?P<mesh>[0-9x]+):(?P<cuts>.*)$")
CUT = re.compile(r"R|P|SS\(\d+,\d+\)|S\(\d+\)")

# One placement per mesh dim, in Tessera's notation: ("S(0)", "P").
Placements = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """Names one case; its text is what --case takes."""

    entry: str
    sample: int
    mesh: str
    # One per tensor of the sample, in the order in which they are found.
    placements: tuple[Placements, ...]

    def __str__(self) -> str:
        cuts = ";".join("".join(p) for p in self.placements)
        return f"{self.entry}#{self.sample}@{self.mesh}:{cuts}"

    def ranks(self) -> int:
        size = 1
        for dim in MESHES[self.mesh]:
            size *= dim
        return size


def parse_case(text: str) -> Case:
    """Reads what str(case) wrote: 'add#3@2x2:S(0)R;RP'."""
    match = CASE.match(text)
    if not match or match["mesh"] not in MESHES:
        raise ValueError(f"not a case: {text!r}; expected ENTRY#SAMPLE@MESH:CUTS")
    placements = []
    for cuts in match["cuts"].split(";") if match["cuts"] else []:
        found = CUT.findall(cuts)
        if "".join(found) != cuts or len(found) != len(MESHES[match["mesh"]]):
            raise ValueError(f"not placements of mesh {match['mesh']}: {cuts!r}")
        placements.append(tuple(found))
    return Case(match["entry"], int(match["sample"]), match["mesh"], tuple(placements))
