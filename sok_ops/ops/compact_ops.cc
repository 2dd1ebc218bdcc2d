// The op with which a chain of checkpoints becomes one, for the command line.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

REGISTER_OP("SokCompactCheckpoint")
    .Input("folder: string")
    .Input("prefix: string")
    .Input("id: string")
    .Output("reference: string")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      for (int i = 0; i < 2; ++i) c->set_output(i, c->Scalar());
      return ::tensorflow::Status();
    })
    .Doc(
        R"(Makes one full checkpoint of a table's chain of full and incremental ones, bringing all rows up to date.
folder: of the chain's last.
prefix, id: of the new one; `id` has 16 hex digits.
reference: what finds the new one again, for TensorFlow's part of the checkpoint.
message: the error, in the engine's words alone; empty where there is none.)");

}  // namespace
}  // namespace sok
