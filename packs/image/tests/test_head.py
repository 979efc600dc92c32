"""Heads over embeddings equal the same network in torch, whatever the names of their weights."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from curator_image import Aesthetic, Head
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

from curator.api.errors import CuratorError, InputError
from curator.testing import check_stage, run_stage
from packs.image.tests.image_batches import images

WIDTH = 12


def batch_of(vectors, **columns):
    return images(*[None] * len(vectors), embedding=pa.array(vectors, pa.list_(pa.float32())), **columns)


def vectors(rows=5, width=WIDTH, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)


class Laion(nn.Module):
    """The shape and the names of LAION's aesthetic predictor."""

    def __init__(self, width=768):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 1024), nn.Dropout(0.2), nn.Linear(1024, 128), nn.Dropout(0.2),
                                    nn.Linear(128, 64), nn.Dropout(0.1), nn.Linear(64, 16), nn.Linear(16, 1))

    def forward(self, x):
        return self.layers(x)


class Normalization(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.randn(width))
        self.register_buffer("variance", torch.rand(width) + 0.1)


class Nsfw(nn.Module):
    """The shape and the names of LAION's NSFW head."""

    def __init__(self, width=768):
        super().__init__()
        self.norm = Normalization(width)
        self.linear_1, self.linear_2 = nn.Linear(width, 64), nn.Linear(64, 512)
        self.linear_3, self.linear_4 = nn.Linear(512, 256), nn.Linear(256, 1)

    def forward(self, x):
        x = (x - self.norm.mean) / self.norm.variance.sqrt()
        for layer in (self.linear_1, self.linear_2, self.linear_3):
            x = layer(x).relu()
        return self.linear_4(x).sigmoid()


def wanted(model, given):
    with torch.inference_mode():
        return model.eval()(nn.functional.normalize(torch.from_numpy(given))).numpy()


def test_the_aesthetic_head_equals_laions(tmp_path):
    torch.manual_seed(1)
    model, given_vectors = Laion(), vectors(7, 768)
    torch.save(model.state_dict(), tmp_path / "sac+logos+ava1-l14-linearMSE.pth")
    stage = Aesthetic(weights=str(tmp_path / "sac+logos+ava1-l14-linearMSE.pth"))
    got = run_stage(stage, batch_of(list(given_vectors)))["out"].column("aesthetic")
    np.testing.assert_allclose(got, wanted(model, given_vectors)[:, 0], rtol=1e-4, atol=1e-6)


def test_the_nsfw_head_equals_laions(tmp_path):
    torch.manual_seed(2)
    model, given_vectors = Nsfw(), vectors(7, 768)
    save_file(model.state_dict(), tmp_path / "nsfw.safetensors")
    stage = Head(weights=str(tmp_path / "nsfw.safetensors"), into="nsfw_score", activation="relu", output="sigmoid")
    got = run_stage(stage, batch_of(list(given_vectors)))["out"].column("nsfw_score")
    np.testing.assert_allclose(got, wanted(model, given_vectors)[:, 0], rtol=1e-4, atol=1e-6)


@settings(max_examples=20)
@given(widths=st.lists(st.integers(1, 9), min_size=1, max_size=12), activation=st.sampled_from(["none", "relu", "gelu"]),
       output=st.sampled_from(["none", "sigmoid", "softmax"]), normalize=st.booleans(), bias=st.booleans(),
       seed=st.integers(0, 99))
def test_any_chain_of_layers_equals_torch(widths, activation, output, normalize, bias, seed, tmp_path_factory):
    torch.manual_seed(seed)
    if output == "softmax":
        widths = [*widths, 3]
    made = [nn.Linear(a, b, bias=bias) for a, b in zip([WIDTH, *widths], widths, strict=False)]
    between = {"none": nn.Identity, "relu": nn.ReLU, "gelu": nn.GELU}[activation]
    model = nn.Sequential(*[step for layer in made for step in (layer, between())][:-1])
    path = tmp_path_factory.mktemp("head") / "model.safetensors"
    save_file(model.state_dict(), path)
    names = [f"o{k}" for k in range(widths[-1])]
    stage = Head(weights=str(path), into=names, activation=activation, output=output, normalize=normalize)
    given_vectors = vectors(4, seed=seed)
    got = run_stage(stage, batch_of(list(given_vectors)))["out"]
    with torch.inference_mode():
        x = torch.from_numpy(given_vectors)
        logits = model(nn.functional.normalize(x) if normalize else x)
        expected = {"none": logits, "sigmoid": logits.sigmoid(), "softmax": logits.softmax(-1)}[output]
    np.testing.assert_allclose(np.stack([got.column(n) for n in names], 1), expected.numpy(), rtol=1e-4, atol=2e-6)


@pytest.fixture
def linear(tmp_path):
    torch.manual_seed(3)
    save_file(nn.Linear(WIDTH, 1).state_dict(), tmp_path / "linear.safetensors")
    return str(tmp_path / "linear.safetensors")


def test_keeps_the_rules_of_a_stage(linear):
    batch = batch_of([*vectors(3), None, vectors(1)[0]], caption=list("abcde"))
    check_stage(Head(weights=linear), batch, tolerance=1e-4)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), WIDTH), pa.large_list(pa.float64()),
                                  pa.list_(pa.float16())], ids=str)
def test_reads_embeddings_of_every_list_type(linear, kind):
    given_vectors = np.float16(vectors(3))
    batch = images(*[None] * 5, embedding=pa.array([given_vectors[0], None, *given_vectors[1:], None], kind))
    got = run_stage(Head(weights=linear), batch)["out"].column("score")
    plain = run_stage(Head(weights=linear), batch_of(list(np.float32(given_vectors))))["out"].column("score")
    assert got[1:5:3] == [None, None]
    np.testing.assert_allclose([got[0], *got[2:4]], plain, rtol=1e-5)


def test_a_vector_without_finite_numbers_has_no_score(linear):
    broken = vectors(4)
    broken[1, 3], broken[2, 0] = np.nan, np.inf
    got = run_stage(Head(weights=linear), batch_of(list(broken)))["out"].column("score")
    assert [score is None for score in got] == [False, True, True, False]


def test_embeddings_of_another_model_are_an_error_that_says_both_widths(linear):
    with pytest.raises(InputError, match=f"7 numbers where {WIDTH} are wanted"):
        run_stage(Head(weights=linear), batch_of(list(vectors(3, 7))))
    with pytest.raises(InputError, match="should hold embeddings"):
        run_stage(Head(weights=linear), images(*[None] * 3, embedding=["a", "b", "c"]))


@pytest.mark.parametrize(("state", "words"), [
    ({"a.weight": (4, WIDTH), "b.weight": (1, 5)}, "takes 5 numbers, and the one before gives 4"),
    ({"a.weight": (1, WIDTH), "bn.weight": (WIDTH,), "bn.bias": (WIDTH,)}, "holds bn.bias, bn.weight"),
    ({"a.weight": (1, WIDTH), "x.mean": (WIDTH,), "y.mean": (WIDTH,), "y.variance": (WIDTH,)}, "one `mean`"),
    ({"a.weight": (1, WIDTH), "x.mean": (5,), "x.variance": (5,)}, "one `mean`"),
    ({"conv.weight": (4, 3, 2, 2)}, "no linear layer"),
    ({"a.weight": (2, WIDTH)}, "has 2 outputs, and `into` names 1"),
], ids=str)
def test_weights_that_are_no_head_are_an_error_that_names_them(state, words, tmp_path):
    save_file({name: torch.ones(size) for name, size in state.items()}, tmp_path / "w.safetensors")
    with pytest.raises(CuratorError, match=words):
        run_stage(Head(weights=str(tmp_path / "w.safetensors")), batch_of(list(vectors(3))))


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_pickle_with_code_in_it_is_refused_and_not_run(tmp_path):
    torch.save({"a.weight": Evil(str(tmp_path / "ran"))}, tmp_path / "w.pth")
    with pytest.raises(CuratorError, match="cannot be read as weights"):
        run_stage(Head(weights=str(tmp_path / "w.pth")), batch_of(list(vectors(3))))
    assert not (tmp_path / "ran").exists()


def test_a_file_that_is_not_there_is_an_error_that_says_how_one_is_named(monkeypatch):
    import huggingface_hub

    with pytest.raises(CuratorError, match="repository:file"):
        run_stage(Head(weights="nowhere.pth"), batch_of(list(vectors(3))))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CuratorError, match="HF_HUB_OFFLINE is set"):
        run_stage(Head(weights="nobody/nothing:w.safetensors"), batch_of(list(vectors(3))))


@pytest.mark.parametrize("wrong", [{"activation": "tanh"}, {"output": "relu"}, {"into": []}, {"into": ["a", "a"]},
                                   {"output": "softmax"}], ids=str)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Head(weights="w", **wrong)
