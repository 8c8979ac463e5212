"""A hierarchical classifier in plain torch: your network, your training loop, one new line."""

import torch
import torch.nn.functional as F
from torch import nn

import arbormax as am

tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak", "elm"]})
y = torch.arange(200) % tax.num_leaves
x = F.one_hot(y, 8).float() + 0.3 * torch.randn(200, 8)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, tax.num_leaves))
am.replace_head(model, tax)  # the new line
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(100):
    optimiser.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimiser.step()
print(f"accuracy {(model(x).argmax(-1) == y).float().mean():.3f}")
