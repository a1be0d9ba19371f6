"""The papers' figures and the benchmarks against peers. May import any verb; no verb imports it."""
