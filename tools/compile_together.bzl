"""compile_together: several sources in one compilation, where most of the compiler's time goes into their headers."""

def including(name, result, sources):
    """A file that includes sources of this package.

    Args:
      name: of the rule that writes the file.
      result: the file's path in this package.
      sources: the included files.

    Returns:
      The file's label.
    """
    lines = ["#include \\\"%s/%s\\\"" % (native.package_name(), source) for source in sources]
    native.genrule(
        name = name,
        outs = [result],
        cmd = "printf '%s\\n' " + " ".join(["\"%s\"" % line for line in lines]) + " > $@",
    )
    return result

def compile_together(name, srcs, most = 8, suffix = ""):
    """Files to compile in place of `srcs`, each of which includes up to `most` of them.

    The names in the anonymous namespaces of `srcs` must differ. Name `srcs` among the `textual_hdrs` of the library.

    Args:
      name: begins the names of the files and of the rules that write them.
      srcs: .cc files of this package.
      most: how many of them to compile at once. More save more, but a change of one compiles all of them.
      suffix: ends the files' names, before ".cc".

    Returns:
      The files' labels.
    """
    count = (len(srcs) + most - 1) // most
    bounds = [len(srcs) * i // max(count, 1) for i in range(count + 1)]
    return [
        including("%s_%d" % (name, i), "_together/%s_%d%s.cc" % (name, i, suffix), srcs[bounds[i]:bounds[i + 1]])
        for i in range(count)
    ]
