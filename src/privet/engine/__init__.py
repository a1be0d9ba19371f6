"""The one private training loop: plan, trainer, checkpoint. Every verb that trains uses it."""
