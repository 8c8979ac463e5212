"""Small models with the structure of classifiers of torchvision and timm."""

import pytest
import torch
import torch.nn.functional as F
from many_heads import TREE, C
from torch import nn

import arbormax as am
from arbormax.errors import InputError
from arbormax.heads import TreeHead


class Block(nn.Module):
    """Two convolutions and a skip connection, as in a ResNet."""

    def __init__(self, width: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


class ResNet(nn.Module):
    """As in torchvision: the last layer is `fc`."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(Block(8), Block(8))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.fc(self.avgpool(self.layer1(torch.relu(self.bn1(self.conv1(x))))).flatten(1))


class Vgg(nn.Module):
    """As in older models of torchvision: a Sequential `classifier`, whose last layer returns the logits."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.classifier = nn.Sequential(
            nn.Linear(32, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 16), nn.Linear(16, num_classes)
        )

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Timm(nn.Module):
    """As in timm: `forward_features`, `forward_head`, `get_classifier`, `reset_classifier`; layers in any order."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.num_features = 12
        self.reset_classifier(num_classes)
        self.stem = nn.Conv2d(3, 12, 4, stride=4)
        self.mlp = nn.Linear(12, C)  # one output per class, and registered last
        self.back = nn.Conv1d(C, 12, 1)

    def get_classifier(self):
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str = "avg"):
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def forward_features(self, x):
        return self.back(self.mlp(self.stem(x).flatten(2).mT).mT).mean(2)

    def forward_head(self, x, pre_logits: bool = False):
        return x if pre_logits else self.head(x)

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


ZOO = {"fc": ResNet, "classifier.4": Vgg, "head": Timm}
X = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % C


@pytest.mark.parametrize("kind", ["hierarchical", "flat", "shared"])
@pytest.mark.parametrize("name", ZOO)
def test_the_classifier_is_replaced_and_trains(name: str, kind: str):
    torch.manual_seed(0)
    model = ZOO[name](C)
    assert am.replace_head(model, TREE, kind) is model
    found = [path for path, module in model.named_modules() if isinstance(module, TreeHead)]
    assert found == [name]
    torch.testing.assert_close(model(X).exp().sum(-1), torch.ones(6))
    start = F.cross_entropy(model.train()(X), Y).item()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        optimiser.zero_grad()
        F.cross_entropy(model(X), Y).backward()
        optimiser.step()
    assert F.cross_entropy(model(X), Y).item() < 0.8 * start


@pytest.mark.parametrize("name", ZOO)
def test_weights_load_into_a_new_instance(name: str):
    model = am.replace_head(ZOO[name](C), TREE).eval()
    twin = am.replace_head(ZOO[name](C), TREE).eval()
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(X), model(X))


def test_a_flat_head_keeps_the_predictions():
    model = ResNet(C).eval()
    before = model(X).softmax(-1)
    torch.testing.assert_close(am.replace_head(model, TREE, "flat")(X).exp(), before)


def test_the_methods_of_a_timm_model_still_work():
    model = am.replace_head(Timm(C), TREE).eval()
    assert isinstance(model.get_classifier(), am.HierarchicalSoftmax)
    features = model.forward_head(model.forward_features(X), pre_logits=True)
    nodes = model.get_classifier().node_log_probs(features)
    torch.testing.assert_close(nodes[:, TREE.leaves.tolist()], model(X))


def test_the_error_for_a_timm_model_with_other_classes_suggests_reset_classifier():
    with pytest.raises(InputError, match=rf"'head' has 1000 outputs.*call model\.reset_classifier\({C}\) first"):
        am.replace_head(Timm(1000), TREE)
    with pytest.raises(InputError, match=r"Timm has no classifier; call model\.reset_classifier"):
        am.replace_head(Timm(0), TREE)
    model = Timm(1000)
    model.reset_classifier(C)
    assert isinstance(am.replace_head(model, TREE).head, am.HierarchicalSoftmax)


def test_a_torchvision_model_with_other_classes_is_rejected():
    with pytest.raises(InputError, match=f"'fc' has 1000 outputs, but the taxonomy has {C} classes"):
        am.replace_head(ResNet(1000), TREE)
