"""nlohmann's JSON library, as installed by the system's package manager. It reads and writes checkpoint manifests.

It has headers only, so that its ABI cannot conflict with TensorFlow's. It parses hostile text without exceptions, and
its authors fuzz it. TensorFlow's jsoncpp cannot be used, because TensorFlow's wheel does not export it.
"""

_PREFIXES = ["/usr", "/usr/local"]

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "json",
    hdrs = glob(["include/nlohmann/**"]),
    includes = ["include"],
)
"""

def _json_configure_impl(ctx):
    for prefix in _PREFIXES:
        headers = ctx.path(prefix + "/include/nlohmann")
        if headers.exists:
            ctx.symlink(headers, "include/nlohmann")
            ctx.file("BUILD", _BUILD)
            return
    fail("\nCheckpoints need nlohmann's JSON library (headers), which is not installed. On Debian or Ubuntu: " +
         "apt-get install nlohmann-json3-dev\n")

json_configure = repository_rule(
    implementation = _json_configure_impl,
    configure = True,
)
