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

}  // namespace
}  // namespace sok
