"""Releases of snug: what `make dist` builds, of core, crates, bindings and deploy, and how it is tested."""

# The layers, lowest first: a module imports those of its own layer and of lower ones (tools/check).
LAYERS = (
    "project",
    "parts",
    "bill licences",
    "archives staging",
    "apk_repository base_images buildpacks crates gems images linux_packages publish wheels",
    "dist",
)
