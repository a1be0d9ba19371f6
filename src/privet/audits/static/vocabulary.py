"""Names of other libraries that mean something here, without the packages they stand in.

A name is read after renamed imports are undone: `from torch.utils.data import DataLoader as DL`
makes `DL` a `DataLoader`.
"""

from typing import Final

NOISE: Final = frozenset(
    {"randn", "randn_like", "normal", "normal_", "standard_normal", "laplace", "gauss"}
)
# The place of the standard deviation among the arguments, where noise takes one.
SCALE_ARGUMENT: Final = {"normal": 1, "normal_": 1, "laplace": 1, "gauss": 1}
SCALE_KEYWORDS: Final = frozenset({"std", "scale", "sigma", "stddev"})

NORMS: Final = frozenset(
    {"norm", "vector_norm", "global_norm", "l2_norm", "tree_norm", "tree_l2_norm", "sqrt"}
)
LIMITS: Final = frozenset({"min", "max", "minimum", "maximum", "clamp", "clip", "clamp_", "where"})
CLIPPERS: Final = frozenset({"clip_grad_norm_", "clip_grad_value_", "clip_grad_norm"})

GRADIENT_ATTRIBUTES: Final = frozenset({"grad", "grad_sample", "summed_grad"})
GRADIENTS: Final = frozenset({"grad", "value_and_grad", "grad_and_value", "jacrev", "backward"})
VECTORISED: Final = frozenset({"vmap", "pmap", "jacrev", "vectorized_map"})
WRAPPERS: Final = VECTORISED | {"jit", "partial", "checkpoint", "compile"}
PER_EXAMPLE: Final = VECTORISED | {
    "GradSampleModule", "grad_sample", "make_private", "make_private_with_epsilon",
    "DPOptimizer", "clipped_grad", "call_for_per_sample_grads",
}  # fmt: skip

ENGINES: Final = frozenset({"make_private", "make_private_with_epsilon"})
POISSON_ACCOUNTANTS: Final = frozenset(
    {
        "RDPAccountant", "PRVAccountant", "GaussianAccountant", "create_accountant",
        "get_noise_multiplier", "PoissonSampledDpEvent", "compute_dp_sgd_privacy",
        "compute_dp_sgd_privacy_lib", "compute_dp_sgd_privacy_statement", "compute_rdp",
    }
)  # fmt: skip
CLAIMS: Final = POISSON_ACCOUNTANTS | ENGINES | {
    "PrivacyEngine", "RdpAccountant", "PLDAccountant", "GaussianDpEvent", "get_epsilon",
    "SampledWithoutReplacementDpEvent", "DPOptimizer", "DPKerasSGDOptimizer",
    "DPKerasAdamOptimizer",
}  # fmt: skip
MULTIPLIER_KEYWORDS: Final = frozenset({"noise_multiplier", "noise_multipliers"})
EVENTS_OF_MULTIPLIERS: Final = frozenset({"GaussianDpEvent"})

OF_FIXED_SIZE: Final = frozenset({"choice", "sample", "randint", "integers"})
POISSON_SAMPLERS: Final = frozenset(
    {"bernoulli", "UniformWithReplacementSampler", "DPDataLoader", "binomial", "make_private",
     "make_private_with_epsilon"}
)  # fmt: skip
UNIFORM: Final = frozenset({"rand", "random", "uniform", "rand_like"})

OPTIMISERS: Final = frozenset(
    {"SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "LBFGS", "Adamax"}
)
BATCH_NORMS: Final = frozenset(
    {
        "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm",
        "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "BatchNormalization",
    }
)  # fmt: skip
# Networks of torchvision that hold batch norm unless `norm_layer` says otherwise.
WITH_BATCH_NORM: Final = (
    "resnet", "wide_resnet", "resnext", "densenet", "mobilenet", "efficientnet", "shufflenet",
    "mnasnet", "googlenet", "inception", "regnet",
)  # fmt: skip
REPAIRS: Final = frozenset({"fix", "without_batchnorm", "convert_batchnorm_modules"})
STATISTICS: Final = frozenset({"mean", "std", "var", "nanmean", "nanstd"})
COUNTS: Final = frozenset(
    {"bincount", "unique", "Counter", "value_counts", "compute_class_weight", "max", "min",
     "amax", "amin", "quantile", "percentile", "median", "histogram", "build_vocab_from_iterator"}
)  # fmt: skip
FITTED: Final = frozenset({"fit", "fit_transform", "adapt"})
SEEDS: Final = frozenset({"manual_seed", "manual_seed_all", "seed"})
SEEDED: Final = frozenset({"default_rng", "RandomState", "PRNGKey", "key"})
KEEPERS: Final = frozenset({"state_dict", "save", "deepcopy", "save_pretrained", "save_weights"})
PARAMETER_LISTS: Final = frozenset({"parameters", "named_parameters"})
JOINS: Final = frozenset({"cat", "concat", "concatenate", "vstack"})
PAIRINGS: Final = frozenset({"reshape", "chunk", "unflatten"})

# Calls that pass a value on: the receiver, or the first argument.
TRANSPARENT: Final = frozenset(
    {
        "to", "view", "reshape", "clone", "detach", "float", "double", "half", "cpu", "cuda",
        "contiguous", "squeeze", "unsqueeze", "flatten", "ravel", "copy", "astype", "expand",
        "sum", "item", "list", "tuple", "items", "values", "reversed", "sorted", "asarray", "array",
        "as_tensor", "tensor", "view_as", "expand_as", "type_as", "stack", "zip", "enumerate",
        "next", "iter", "parameters_to_vector", "ravel_pytree", "abs", "int", "set", "dict",
    }
)  # fmt: skip
SUMS: Final = frozenset({"add", "add_", "sub", "sub_", "subtract"})
PRODUCTS: Final = frozenset({"mul", "mul_", "multiply", "matmul", "mm", "tensordot", "einsum"})
QUOTIENTS: Final = frozenset({"div", "div_", "divide", "true_divide"})
MAPS: Final = frozenset({"tree_map", "map", "tree_multimap"})
EMPTY: Final = frozenset({"zeros", "zeros_like", "empty_like", "empty", "full"})
