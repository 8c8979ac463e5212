"""A hierarchical classifier in Lightning: replace the last layer of the network."""

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import arbormax as am

tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak", "elm"]})


class Classifier(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = am.replace_head(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, tax.num_leaves)), tax)

    def training_step(self, batch, _):
        return F.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


y = torch.arange(200) % tax.num_leaves
x = F.one_hot(y, 8).float() + 0.3 * torch.randn(200, 8)
model = Classifier()
trainer = pl.Trainer(max_epochs=15, accelerator="cpu", logger=False, enable_checkpointing=False)
trainer.fit(model, DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True))
print(f"accuracy {(model.net(x).argmax(-1) == y).float().mean():.3f}")
