"""Models in the files of Hugging Face, loaded onto a mesh from Python."""
import pytest
import tessera
import torch
from tessera import checkpoint

save_file = pytest.importorskip("safetensors.torch").save_file


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.embed_tokens = torch.nn.Embedding(11, 6)
        self.model.norm = torch.nn.RMSNorm(6, eps=1e-5)
        self.lm_head = torch.nn.Linear(6, 11, bias=False)
        self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, words):
        return self.lm_head(self.model.norm(self.model.embed_tokens(words)))


def weights():
    generator = torch.Generator().manual_seed(3)
    return {"model.embed_tokens.weight": torch.randn(11, 6, generator=generator).bfloat16(),
            "model.norm.weight": torch.rand(6, generator=generator).bfloat16()}


@pytest.fixture
def cache(tmp_path):
    """As the hub keeps a model: links to files that have no names."""
    snapshot = tmp_path / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").mkdir()
    save_file(weights(), tmp_path / "blobs" / "1", metadata={"format": "pt"})
    (snapshot / "model.safetensors").symlink_to("../../blobs/1")
    (tmp_path / "blobs" / "2").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/2")
    return snapshot


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_tied_weights_of_the_cache_are_loaded_onto_a_mesh(cache, ranks):
    words = torch.tensor([[1, 5, 10], [0, 3, 3]])
    plain = Model().double()
    with torch.no_grad():
        for name, value in weights().items():
            plain.get_parameter(name).copy_(value)
        want = plain(words)

    def load():
        mesh = tessera.init_device_mesh("cpu", (ranks,))
        model = Model().double()
        tessera.make_dtensor_(model.lm_head.weight, mesh, "S(0)")
        tessera.distribute_module(model, mesh)
        state = checkpoint.state_dict(model)
        assert "lm_head.weight" in state, "two names, of which the file has one"
        checkpoint.load(state, cache, convert_dtype=True, follow_links=True)
        with torch.no_grad():
            return tessera.full_tensor(
                model(tessera.distribute_tensor(words, mesh, "R")))

    for got in tessera.run_ranks(ranks, load, deadline=60):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_links_are_refused_unless_asked_for(cache):
    state = {name: torch.zeros_like(value) for name, value in weights().items()}
    for call in (lambda **k: checkpoint.load(state, cache, **k),
                 lambda **k: checkpoint.list(cache, **k),
                 lambda **k: checkpoint.verify(cache, **k)):
        with pytest.raises(Exception, match="symbolic link.*follow_links"):
            call()
        call(follow_links=True)
    for name, value in weights().items():
        assert torch.equal(state[name], value)
    with pytest.raises(TypeError, match="follow_links"):
        checkpoint.load(state, cache, follow_links="yes")


def test_a_weight_that_is_not_tied_is_missing(cache):
    state = {**{name: torch.zeros_like(value) for name, value in weights().items()},
             "lm_head.weight": torch.zeros(11, 6, dtype=torch.bfloat16)}
    with pytest.raises(ValueError, match="the checkpoint lacks 'lm_head.weight'"):
        checkpoint.load(state, cache, follow_links=True)
