"""Stand-ins for repositories that Bazel 4 would download.

Bazel 4 downloads `@rules_cc` and similar repositories when a built-in macro or a test target refers to them. All rules
that this project needs from them are native in Bazel 4, so the repositories here only forward the names that Bazel loads.
"""

_FORWARDED = {
    "rules_cc": ("cc", [
        "cc_binary",
        "cc_library",
        "cc_test",
        "cc_toolchain",
        "cc_toolchain_suite",
    ]),
    "rules_java": ("java", [
        "java_binary",
        "java_import",
        "java_runtime",
        "java_toolchain",
    ]),
}

def _forwarding_repository_impl(ctx):
    folder = ctx.attr.folder
    ctx.file("BUILD")
    ctx.file(folder + "/BUILD", 'package(default_visibility = ["//visibility:public"])\n')
    ctx.file(folder + "/defs.bzl", "\n".join(["{0} = native.{0}".format(name) for name in ctx.attr.names]) + "\n")

_forwarding_repository = repository_rule(
    implementation = _forwarding_repository_impl,
    attrs = {
        "folder": attr.string(mandatory = True),
        "names": attr.string_list(mandatory = True),
    },
)

_COVERAGE_BUILD = """
package(default_visibility = ["//visibility:public"])

sh_binary(
    name = "coverage_report_generator",
    srcs = ["unavailable.sh"],
)

sh_binary(
    name = "lcov_merger",
    srcs = ["unavailable.sh"],
)
"""

def _coverage_repository_impl(ctx):
    ctx.file("BUILD", _COVERAGE_BUILD)
    ctx.file(
        "unavailable.sh",
        "#!/bin/sh\necho 'coverage needs tools that this offline build does not have' >&2\nexit 1\n",
        executable = True,
    )

_coverage_repository = repository_rule(implementation = _coverage_repository_impl)

def offline_repositories():
    """Declares the stand-ins. Every test target refers to the coverage tools, even without coverage."""
    for name, (folder, names) in _FORWARDED.items():
        _forwarding_repository(name = name, folder = folder, names = names)
    _coverage_repository(name = "remote_coverage_tools")
