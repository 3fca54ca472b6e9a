/* modules.c: which modules there are, riskiest first. */
#include "module.h"

extern const struct fuzz_module interface_module, differential_module, pages_module, slabs_module, caches_module,
    large_module, upkeep_module, mallctl_module, control_module, samples_module, aside_module;

const struct fuzz_module *const fuzz_modules[] = {
    &interface_module, &differential_module, &pages_module,   &slabs_module,   &caches_module, &large_module,
    &upkeep_module,    &mallctl_module,      &control_module, &samples_module, &aside_module,  NULL,
};
