"""What is tested: Tessera, and PyTorch's DTensor by the same questions."""
import abc
import contextlib
import functools
import threading

import torch

from cases import Placements


class Backend(abc.ABC):
    """Sharded tensors on ranks that are threads of this process."""

    name: str
    # Whether random values depend on seed, operation and shape alone.
    same_on_every_mesh: bool

    @abc.abstractmethod
    def run_world(self, ranks: int, body) -> None:
        """Calls body(rank) on as many threads; a rank's exception ends the others
        and is raised here."""

    @abc.abstractmethod
    def mesh(self, shape: tuple[int, ...]):
        """Makes a mesh of all ranks; every rank calls it."""

    @abc.abstractmethod
    def coordinate(self, mesh) -> tuple[int, ...]:
        """Returns this rank's place in the mesh."""

    @abc.abstractmethod
    def distribute(self, tensor: torch.Tensor, mesh, placements: Placements):
        """Cuts a value that all ranks have, without communication."""

    @abc.abstractmethod
    def from_local(self, local, mesh, placements: Placements, like: torch.Tensor):
        """Makes a sharded tensor of the shape and strides of `like`."""

    @abc.abstractmethod
    def to_local(self, tensor) -> torch.Tensor:
        """Returns this rank's shard."""

    @abc.abstractmethod
    def is_sharded(self, value) -> bool:
        """Tells a sharded tensor from a plain one."""

    @abc.abstractmethod
    def full(self, tensor) -> torch.Tensor:
        """Returns the whole value as a plain tensor; differentiable."""

    def fallbacks(self) -> dict[str, int]:
        """Returns how often operators ran on whole values for want of a rule."""
        return {}

    def gathers(self) -> dict[str, tuple[int, int]]:
        """Returns how often operators made whole what was cut, and the bytes."""
        return {}

    def is_named_whole(self, op: str) -> bool:
        """Tells whether an operator is on the list of those that need whole values."""
        return False

    def implicit_replication(self):
        """Lets plain tensors be mixed in."""
        return contextlib.nullcontext()

    def replicated_random(self):
        """Draws equal plain tensors on all ranks, and lets them be mixed in."""
        return contextlib.nullcontext()

    def seed(self, number: int) -> None:
        """Seeds random numbers; every rank calls it."""
        torch.manual_seed(number)

    def represents(self, tensor, value: torch.Tensor) -> bool:
        """Tells whether a sharded tensor, just made of a value, gives it back."""
        return True

    def shard(self, tensor: torch.Tensor, mesh, placements: Placements):
        """Makes a leaf of a plain tensor; addends are multiples of the value whose
        sum is exact."""
        if "P" in placements:
            places = self.coordinate(mesh)
            addend = tensor
            for place, placement in zip(places, placements):
                if placement == "P":
                    addend = addend_of(addend, place)
            whole = tuple("R" if p == "P" else p for p in placements)
            local = self.to_local(self.distribute(addend, mesh, whole))
            sharded = self.from_local(local, mesh, placements, tensor)
        else:
            sharded = self.distribute(tensor, mesh, placements)
        return sharded.detach().requires_grad_(tensor.requires_grad)


def addend_of(value: torch.Tensor, place: int) -> torch.Tensor:
    """Returns 2 x, -x, 0, 0... of which the sum is x; what is not finite, or would
    not be when doubled, stands on the first rank alone."""
    value = value.detach()
    factor = (2, -1)[place] if place < 2 else 0
    if value.is_floating_point() or value.is_complex():
        small = value.abs() < torch.finfo(value.dtype).max / 4
        alone = value if place == 0 else torch.zeros_like(value)
        return torch.where(small, value * factor, alone)
    return value * factor


class DTensorBackend(Backend):
    """PyTorch's own, on its threaded process group as in its own operator tests."""

    name = "dtensor"
    same_on_every_mesh = False

    def __init__(self) -> None:
        from torch.distributed import tensor as dtensor
        from torch.testing._internal.distributed import multi_threaded_pg

        self.api, self.groups = dtensor, multi_threaded_pg

    def run_world(self, ranks: int, body) -> None:
        import torch.distributed as dist

        failures: list[BaseException] = []
        self.groups._install_threaded_pg()
        torch._C._distributed_c10d._set_thread_isolation_mode(True)
        store = dist.HashStore()

        def rank_body(rank: int) -> None:
            dist.init_process_group(
                backend="threaded", rank=rank, world_size=ranks, store=store)
            try:
                body(rank)
            except BaseException as error:  # SystemExit ends waits of others
                failures.append(error)
                self.groups.ProcessLocalGroup.exception_handle(error)
            finally:
                dist.destroy_process_group()

        threads = [threading.Thread(target=rank_body, args=(r,)) for r in range(ranks)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            self.groups.ProcessLocalGroup.reset()
            self.groups._uninstall_threaded_pg()
            torch._C._distributed_c10d._set_thread_isolation_mode(False)
        if failures:
            raise failures[0]

    def mesh(self, shape):
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh("cpu", shape)

    def coordinate(self, mesh):
        return tuple(mesh.get_coordinate())

    def placements(self, placements: Placements) -> list:
        from torch.distributed.tensor.placement_types import _StridedShard

        made = []
        for text in placements:
            numbers = [int(n) for n in text.strip("SRP()").split(",") if n]
            made.append({"R": lambda: self.api.Replicate(),
                         "P": lambda: self.api.Partial(),
                         "S": lambda: self.api.Shard(numbers[0]),
                         "SS": lambda: _StridedShard(
                             numbers[0], split_factor=numbers[1])}
                        [text.split("(")[0]]())
        return made

    def distribute(self, tensor, mesh, placements):
        return self.api.distribute_tensor(
            tensor.detach(), mesh, self.placements(placements), src_data_rank=None)

    def from_local(self, local, mesh, placements, like):
        return self.api.DTensor.from_local(
            local, mesh, self.placements(placements), run_check=False,
            shape=like.shape, stride=like.stride())

    def to_local(self, tensor):
        return tensor.to_local()

    def is_sharded(self, value):
        return isinstance(value, self.api.DTensor)

    def implicit_replication(self):
        # Its own guard ends for all threads when the first rank leaves it; an entry
        # has a process to itself, so here it never ends.
        self.api.DTensor._op_dispatcher._allow_implicit_replication = True
        return contextlib.nullcontext()

    def replicated_random(self):
        return self.implicit_replication()

    def represents(self, tensor, value):
        whole = tensor.detach().full_tensor()
        return whole.shape == value.shape and torch.equal(
            whole.nan_to_num(), value.detach().nan_to_num())

    def full(self, tensor):
        return tensor.full_tensor()


class TesseraBackend(Backend):
    """Tessera, through its Python bindings."""

    name = "tessera"
    same_on_every_mesh = True

    def __init__(self) -> None:
        import tessera

        self.api = tessera

    def run_world(self, ranks, body):
        self.api.run_ranks(ranks, lambda: body(self.api.rank()))

    def mesh(self, shape):
        return self.api.init_device_mesh("cpu", list(shape))

    def coordinate(self, mesh):
        return tuple(mesh.coordinate)

    def placements(self, placements: Placements) -> list:
        made = []
        for text in placements:
            numbers = [int(n) for n in text.strip("SRP()").split(",") if n]
            make = {"R": self.api.Replicate, "P": self.api.Partial,
                    "S": self.api.Shard, "SS": self.api.StridedShard}
            made.append(make[text.split("(")[0]](*numbers))
        return made

    def distribute(self, tensor, mesh, placements):
        return self.api.distribute_tensor(
            tensor.detach(), mesh, self.placements(placements), src_data_rank=None)

    def from_local(self, local, mesh, placements, like):
        return self.api.from_local(
            local, mesh, self.placements(placements), shape=list(like.shape),
            stride=list(like.stride()))

    def to_local(self, tensor):
        return self.api.to_local(tensor)

    def is_sharded(self, value):
        return isinstance(value, torch.Tensor) and self.api.is_dtensor(value)

    def full(self, tensor):
        return self.api.full_tensor(tensor)

    def fallbacks(self):
        return self.api.fallback_counts()

    def gathers(self):
        return {op: (count.count, count.bytes)
                for op, count in self.api.gather_counts().items()}

    @functools.cached_property
    def named_whole(self) -> set[str]:
        return {op.name for op in self.api.list_operators()
                if op.gathers.startswith("named")}

    def is_named_whole(self, op):
        return op in self.named_whole

    def implicit_replication(self):
        return self.api.ImplicitReplication()

    def replicated_random(self):
        return self.api.ReplicatedRandom()

    def seed(self, number):
        self.api.manual_seed(number)


BACKENDS = {"tessera": TesseraBackend, "dtensor": DTensorBackend}
