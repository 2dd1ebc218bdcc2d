#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

// Stateful, so that no other pass removes or merges them.
REGISTER_OP("SokMark")
    .Output("mark: int32")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::ScalarShape)
    .Doc(
        R"(Says that what runs before it, on its device, has run. The library adds it to graphs that have devices.
mark: a number in host memory.)");

REGISTER_OP("SokPassMark")
    .Input("mark: int32")
    .SetIsStateful()
    .SetShapeFn(::tensorflow::shape_inference::NoOutputs)
    .Doc(R"(Lets ops on its device run after a mark on another device of the process.
mark: the output of SokMark.)");

}  // namespace
}  // namespace sok
