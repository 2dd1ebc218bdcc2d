"""The Python package with the op libraries inside: as a folder to run from, and as a wheel.

Both have the same layout: python/PACKAGE/... becomes PACKAGE/..., and the op libraries are in PACKAGE/.
"""

load("@tensorflow//:tf.bzl", "TF_VERSION")

_SOURCES = "python/"
_LIBRARIES = ["sok_ops/%s.so" % name for name in ["sok_ops", "sok_horovod", "sok_horovod_gpu"]]
_PACKAGE = "sparse_operation_kit"

def _layout(deps):
    """The runfiles of Python libraries as pairs: the file, and its path below site-packages."""
    pairs = []
    for dep in deps:
        for file in dep[DefaultInfo].default_runfiles.files.to_list():
            if file.short_path in _LIBRARIES:
                pairs.append((file, "%s/%s" % (_PACKAGE, file.basename)))
            elif file.short_path.startswith(_SOURCES):
                pairs.append((file, file.short_path[len(_SOURCES):]))
    return pairs

def _site_packages_impl(ctx):
    links = []
    for file, path in _layout(ctx.attr.deps):
        link = ctx.actions.declare_file("%s/%s" % (ctx.label.name, path))
        ctx.actions.symlink(output = link, target_file = file)
        links.append(link)
    return [DefaultInfo(files = depset(links))]

# A folder for Python's path. Its files are links to the sources, so that edits need no build.
site_packages = rule(
    implementation = _site_packages_impl,
    attrs = {"deps": attr.label_list(mandatory = True)},
)

def _wheel_impl(ctx):
    # The output is the wheel's folder: the wheel's name contains the version, which is only in the sources.
    folder = ctx.actions.declare_directory(ctx.label.name)
    pairs = _layout(ctx.attr.deps)
    args = ctx.actions.args()
    args.add(folder.path)
    args.add(TF_VERSION)
    args.add(ctx.file.license)
    args.add(ctx.file.readme)
    args.add_all(["%s=%s" % (path, file.path) for file, path in pairs])
    args.use_param_file("@%s")
    ctx.actions.run(
        executable = ctx.executable._make_wheel,
        arguments = [args],
        inputs = [file for file, _ in pairs] + [ctx.file.license, ctx.file.readme],
        outputs = [folder],
        mnemonic = "PythonWheel",
        progress_message = "Making the wheel for TensorFlow %s" % TF_VERSION,
    )
    return [DefaultInfo(files = depset([folder]))]

wheel = rule(
    implementation = _wheel_impl,
    attrs = {
        "deps": attr.label_list(mandatory = True),
        "license": attr.label(allow_single_file = True, mandatory = True),
        "readme": attr.label(allow_single_file = True, mandatory = True),
        "_make_wheel": attr.label(default = "//tools:make_wheel", executable = True, cfg = "host"),
    },
)
