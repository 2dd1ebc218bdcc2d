#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;
using tf::shape_inference::InferenceContext;

REGISTER_OP("SokNoRows")
    .Attr("dim: int >= 1")
    .Input("handle: resource")
    .Output("rows: float")
    .SetShapeFn([](InferenceContext* c) {
      int dim;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      c->set_output(0, c->Matrix(0, dim));
      return tf::Status();
    })
    .Doc(R"(Returns no rows of a table. Lookups in branches and functions take them, for their gradients:
TensorFlow makes zeros of their shape if a branch was not taken.
rows: [0, dim].)");

REGISTER_OP("SokRowsOfBranches")
    .Input("handle: resource")
    .Input("given: int64")
    .Output("indices: int64")
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->input(1));
      return tf::Status();
    })
    .Doc(R"(Passes on the row numbers of a gradient that left branches and functions. It tells whose they are.
handle: of the table.
given: [n], references to rows; they may repeat.)");

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
