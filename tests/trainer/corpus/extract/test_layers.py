import pytest

from tpujob_trainer.corpus.extract.layers import Pass, Site, column_of, passes, sites_of


@pytest.mark.parametrize(
    ("layers", "kinds", "columns"),
    [
        pytest.param([15, 16], ["residual"], ["layer_15_residual", "layer_16_residual"], id="numbers"),
        pytest.param(["15-18"], ["mlp"], [f"layer_{n}_mlp" for n in range(15, 19)], id="range"),
        pytest.param(
            ["model.layers.3", "layers.2"], ["residual"], ["layer_2_residual", "layer_3_residual"], id="names"
        ),
        pytest.param(["last"], ["attention", "mlp"], ["layer_27_attention", "layer_27_mlp"], id="last, two kinds"),
        pytest.param(["embedding", "norm"], ["residual"], ["embedding", "norm"], id="ends"),
        pytest.param([3, "2-4", 3], ["residual"], [f"layer_{n}_residual" for n in (2, 3, 4)], id="named twice"),
    ],
)
def test_sites_by_number_and_name(layers, kinds, columns):
    assert [column_of(site, 28) for site in sites_of(layers, kinds, 28)] == columns


@pytest.mark.parametrize(
    ("layers", "kinds", "message"),
    [
        pytest.param([28], ["residual"], "layers: 28 is not in the model, which has layers 0 to 27", id="too high"),
        pytest.param(["15-40"], ["residual"], "layers: '15-40' is not in the model", id="range too high"),
        pytest.param(["18-15"], ["residual"], "layers: '18-15' is not in the model", id="range backwards"),
        pytest.param(["middle"], ["residual"], "layers: 'middle' is not a layer; write", id="no name"),
        pytest.param([-1], ["residual"], "layers: -1 is not a layer; write", id="negative"),
        pytest.param(["norm"], ["mlp"], "keep: 'mlp' is a part of a layer, and norm has none", id="part of the norm"),
    ],
)
def test_layer_not_there_is_refused(layers, kinds, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        sites_of(layers, kinds, 28)


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        pytest.param([15, 16, 17, 18], [Pass(0, 15, False), Pass(15, 19, True)], id="nothing behind the last"),
        pytest.param([0], [Pass(0, 1, True)], id="first"),
        pytest.param([0, 2], [Pass(0, 1, True), Pass(1, 2, False), Pass(2, 3, True)], id="every other"),
        pytest.param([-1], [], id="embedding"),
        pytest.param([1, 4], [Pass(0, 1, False), Pass(1, 2, True), Pass(2, 4, False)], id="norm of four layers"),
    ],
)
def test_passes_over_the_layers(layers, expected):
    assert list(passes([Site(layer) for layer in layers], 4 if 4 in layers else 28)) == expected
