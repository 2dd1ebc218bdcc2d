// The op that merges a chain of checkpoints into one, for the command line.
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
        R"(Merges a table's chain of a full checkpoint and incremental ones into one full checkpoint, with all rows
up to date.
folder: the path of the chain's last checkpoint, as cc/checkpoint/checkpoint_path.h defines it.
prefix, id: of the new checkpoint; `id` has 16 hex digits.
reference: the reference to the new checkpoint, for TensorFlow's part of the checkpoint.
message: the engine's error, without TensorFlow's additions; empty if there is none.)");

}  // namespace
}  // namespace sok
