// The op that trains ordinary variables.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

REGISTER_OP("SokTrainRows")
    .Input("variable: resource")
    .Input("slots: num_slots * resource")
    .Input("hyper: float")
    .Input("rows: int64")
    .Input("gradients: float")
    .Attr("num_slots: int >= 0")
    .Attr("optimizer: string")
    .Attr("variable_name: string")
    .SetIsStateful()
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext*) { return ::tensorflow::Status(); })
    .Doc(R"(Takes one step of an optimizer on some rows of a variable and of its slots (cc/dense_tables).
variable: a float variable [n, dim].
slots: float variables [n, dim], the slots of the optimizer's rule in its order.
hyper: the rule's hyper-parameters in its order.
rows: [m], numbers of rows, in [0, n). The gradients of a row that occurs several times are added up first.
gradients: [m, dim].
optimizer: the name of a rule of cc/optimizers that changes rows with a gradient only.
variable_name: for messages.)");

}  // namespace
}  // namespace sok
