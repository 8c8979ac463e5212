"""Bayes by Backprop: its gradients, its divergence and its draws, against plain automatic differentiation."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call
from torch.nn.functional import softplus

from arbormax.heads import HEADS
from arbormax.model import Model
from arbormax.model.draws import predicted_log_probs
from arbormax.training import fit
from arbormax.uncertainty.bbb import BayesOptions, Variational, gaussian_divergence, logit_stds
from arbormax.uncertainty.copies import copy_model
from toy import TREE, examples, settings

NAMES = [name for name in HEADS.names if HEADS[name].has_logits]


def tiny(encoder="features", **options):
    config = settings("bag", uncertainty="bbb", uncertainty_options=options, head="hierarchical")
    options = {"inputs": 3, "hidden": (4,), "scale": False}
    config = config.model_copy(update={"encoder": encoder, "encoder_options": options})
    return Model.new(torch.randn(8, 3).numpy(), TREE, config).double()


def test_the_gradients_of_a_step_are_those_of_the_bound():
    torch.manual_seed(0)
    model = tiny()
    options = BayesOptions(prior_std=0.7, lstm_prior_std=0.3, initial_std=0.1, kl_weight=0.8, annealing=0.5)
    variational = Variational(model, options, items=20)
    x, target = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 4])
    means = {name: value.detach().clone() for name, value in model.named_parameters()}
    torch.manual_seed(1)
    variational.draw_weights()
    noise = {name: (model.get_parameter(name) - means[name]).detach() / variational.std(name).detach()
             for name in variational.sampled}  # fmt: skip

    def loss_of(head):
        return lambda logits: head.loss_from_logits(logits, target)

    state = torch.get_rng_state()
    variational.loss(model.head, model.encoder(x), loss_of(model.head), progress=0.25).backward()
    variational.finish_step(progress=0.25)
    for name, value in means.items():
        torch.testing.assert_close(model.get_parameter(name), value)  # the means are back
    # the same in one expression
    mean = {name: value.clone().requires_grad_() for name, value in means.items()}
    rho = {name: variational.rho[name.replace(".", "/")].detach().clone().requires_grad_() for name in means}
    drawn = {name: mean[name] + softplus(rho[name]) * noise[name] for name in noise}
    features = functional_call(
        model.encoder, {name.removeprefix("encoder."): value for name, value in drawn.items()}, (x,)
    )
    torch.set_rng_state(state)
    exact = mean["head.weight"], mean["head.bias"]
    weight, bias = (softplus(rho[name]) for name in ("head.weight", "head.bias"))
    std = (features.square() @ weight.square().T + bias.square()).sqrt()
    logits = features @ exact[0].T + exact[1] + std * torch.randn(std.shape, dtype=std.dtype)
    loss = model.head.loss_from_logits(logits, target)
    for name in means:
        prior = 0.7 if name.startswith("head") else 0.3
        divergence = kl_divergence(Normal(mean[name], softplus(rho[name])), Normal(0.0, prior)).sum()
        loss = loss + 0.8 * 0.5 * divergence / 20
    loss.backward()
    for name in means:
        torch.testing.assert_close(model.get_parameter(name).grad, mean[name].grad)
        torch.testing.assert_close(variational.rho[name.replace(".", "/")].grad, rho[name].grad)


def test_the_divergence_is_that_of_normal_distributions():
    mean, std = torch.randn(7, dtype=torch.float64), torch.rand(7, dtype=torch.float64) + 0.1
    expected = kl_divergence(Normal(mean, std), Normal(0.0, 0.4)).sum()
    torch.testing.assert_close(gaussian_divergence(mean, std, 0.4), expected)


@pytest.mark.parametrize("name", NAMES)
def test_logits_give_the_probabilities_and_the_loss_of_a_head(name):
    torch.manual_seed(0)
    head = HEADS[name](3, TREE, init="torch")
    h, nodes = torch.randn(6, 3), torch.tensor([1, 2, 3, 7, 8, 9])
    torch.testing.assert_close(head.from_logits(head.logits(h)), head.node_log_probs(h))
    options = {"target_kind": "node", "reduction": "none", "label_smoothing": 0.1}
    torch.testing.assert_close(head.loss_from_logits(head.logits(h), nodes, **options), head.loss(h, nodes, **options))


def test_drawing_logits_is_drawing_weights():
    torch.manual_seed(0)
    head = HEADS["hierarchical"](3, TREE, init="torch")
    stds = torch.rand_like(head.weight), torch.rand_like(head.bias)
    h = torch.randn(1, 3)
    noise = torch.randn(40_000, len(head.weight)) * logit_stds(h, *stds)
    drawn = (head.logits(h) + noise).detach()
    weights = head.weight + stds[0] * torch.randn(40_000, *head.weight.shape)
    biases = head.bias + stds[1] * torch.randn(40_000, len(head.bias))
    expected = ((weights @ h[0]) + biases).detach()
    torch.testing.assert_close(drawn.mean(0), expected.mean(0), atol=0.05, rtol=0.05)
    torch.testing.assert_close(drawn.std(0), expected.std(0), atol=0.02, rtol=0.03)


@pytest.mark.parametrize("encoder", ["bag", "lstm", "bilstm"])
def test_deviations_are_trained_and_without_divergence_they_shrink(encoder):
    options = {"draws": 4, "initial_std": 0.1}
    free, bound = (
        fit(settings(encoder, uncertainty="bbb", uncertainty_options={**options, "kl_weight": weight}), TREE,
            examples(60)).model.posterior.stds for weight in (0.0, 1.0)
    )  # fmt: skip
    assert free["head.weight"].mean() < bound["head.weight"].mean()
    assert any(name.startswith("encoder.forwards") for name in free) == (encoder != "bag")
    assert all(not torch.allclose(value, torch.full_like(value, 0.1)) for value in bound.values())


@pytest.mark.parametrize("encoder", ["bag", "bilstm"])
def test_predictions_are_the_mean_over_networks_with_drawn_weights(encoder):
    given = {"draws": 1500, "initial_std": 0.3, "annealing": 0.0}
    model = fit(settings(encoder, head="hierarchical", uncertainty="bbb", uncertainty_options=given, epochs=1), TREE,
                examples(24)).model  # fmt: skip
    texts = ["an owlish text", "the eelish one"]
    found = torch.cat(list(predicted_log_probs(model, texts))).exp()
    drawn = copy_model(model)
    torch.manual_seed(0)
    total = torch.zeros_like(found)
    for _ in range(1500):
        for name, std in model.posterior.stds.items():
            with torch.no_grad():
                drawn.get_parameter(name).copy_(model.get_parameter(name) + std * torch.randn_like(std))
        total += torch.cat(list(drawn.node_log_probs(texts))).exp()
    torch.testing.assert_close(found, total / 1500, atol=0.02, rtol=0)
