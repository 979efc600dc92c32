"""TransNet V2: weights by the names that are published, each picture asked once, cuts behind the picture that is marked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from curator_video.shots.transnet import Transnet, boundaries_of

from curator.api.errors import ContractError, CuratorError
from curator.testing import check_stage, run_stage
from packs.video.tests.films import film, films, pan
from packs.video.tests.tiny_encoders import save_transnet

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return save_transnet(tmp_path_factory.mktemp("transnet") / "weights.pth")


def test_weights_have_the_published_names_and_shapes(weights):
    held = torch.load(weights, weights_only=True)
    assert (len(held), sum(one.numel() for one in held.values())) == (90, 7_618_056)
    assert held["SDDCNN.2.DDCNN.1.Conv3D_8.layers.0.weight"].shape == (128, 256, 1, 3, 3)
    assert held["SDDCNN.0.DDCNN.0.bn.running_var"].shape == (64,)
    assert held["frame_sim_layer.projection.weight"].shape == (128, 448)
    assert held["color_hist_layer.fc.weight"].shape == (128, 101)
    assert held["fc1.weight"].shape == (1024, 4864)


def test_other_weights_are_refused_by_name(weights, tmp_path):
    from curator_video.shots.transnet_net import loaded

    held = torch.load(weights, weights_only=True)
    held["fc1.weight"] = held["fc1.weight"][:3]
    torch.save(held, tmp_path / "short.pth")
    with pytest.raises(CuratorError, match=r"fc1\.weight"):
        loaded(str(tmp_path / "short.pth"))
    with pytest.raises(CuratorError, match="there is no file"):
        loaded(str(tmp_path / "none.pth"))


@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 49, 50, 51, 130, 200, 251])
def test_each_picture_is_asked_once_amid_its_neighbours(count, windows):
    from curator_video.shots.transnet_net import predicted

    seen = []

    def net(batch):  # says of a picture the number that is drawn into it
        seen.extend(batch[:, :, 0, 0, 0].tolist())
        return batch[:, :, 0, 0, 0].float()

    pictures = (np.full((27, 48, 3), k, np.uint8) for k in range(count))
    made = [one for piece in predicted(net, pictures, torch.device("cpu"), windows) for one in piece]
    assert made == list(range(count))
    for window in seen:  # in order, the first and the last picture again and again at the ends
        assert len(window) == 100
        assert set(np.diff(window)) <= {0, 1}


def test_pictures_are_compared_with_the_fifty_before_and_behind():
    from curator_video.shots.transnet_net import _around

    vectors = torch.randn(1, 60, 5)
    made = _around(vectors)[0]
    assert made.shape == (60, 101)
    assert made[7, 50 + 12] == pytest.approx(float(vectors[0, 7] @ vectors[0, 19]), abs=1e-5)
    assert made[7, :43].abs().max() == 0


def test_where_boundaries_are():
    marked = np.zeros(100)
    marked[[19, 40, 41]] = 0.9, 0.6, 0.7  # cuts, one marked at two pictures
    marked[60:66] = 0.5  # a transition
    marked[66] = 0.2  # its tail is no boundary of its own
    marked[80] = 0.3  # a weak one
    marked[99] = 0.9  # behind it nothing comes
    told = boundaries_of(marked, np.arange(101) / 25, 0.4)
    assert [(round(one.start * 25), round(one.end * 25), one.kind, one.score) for one in told] == [
        (20, 20, "cut", 0.9), (42, 42, "cut", 0.7), (60, 66, "dissolve", 0.5), (81, 81, "cut", 0.3)]


def test_shots_of_a_film(weights):
    given = films(film(pan(1, 20, 2)), b"no film").with_columns({"start_s": [0.2, 0.0], "end_s": pa.array([0.6, None], pa.float64())})
    answer = run_stage(Transnet(model=weights, threshold=0.99), given)
    row = answer["out"].rows.to_pylist()[0]
    assert [(one["start"], one["end"]) for one in row["shots"]] == [(pytest.approx(0.2), pytest.approx(0.6))]
    assert row["shot_count"] == 1
    assert answer["failed"].column("error")[0].startswith("not_media")


@pytest.mark.slow  # a window takes two seconds
def test_the_stage_keeps_the_rules(weights):
    check_stage(Transnet(model=weights), films(film(pan(1, 20, 2)), b"no film", b""), skip={"needs"})


def test_nonsense_is_refused(weights):
    with pytest.raises(ValueError, match="model"):
        Transnet(model=" ")
    with pytest.raises(ValueError, match="threshold"):
        Transnet(model="x", threshold=1.0)
    with pytest.raises(ContractError, match=r"video\.parts"):
        Transnet(model="x").check({"path": pa.string(), "film_end_s": pa.float64()})
