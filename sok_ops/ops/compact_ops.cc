// The op that merges chains of checkpoints into one, for the command line.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

REGISTER_OP("SokCompactCheckpoint")
    .Input("checkpoint: string")
    .Input("prefix: string")
    .Input("id: string")
    .Attr("tables: list(string) = []")
    .Attr("for_serving: bool = false")
    .Output("message: string")
    .SetIsStateful()
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      return ::tensorflow::Status();
    })
    .Doc(
        R"(Makes a full checkpoint of one whose tables build on others, with all rows up to date.
checkpoint: its prefix.
prefix, id: of the new checkpoint; `id` has 16 hex digits.
tables: the tables to write; empty: all of them, and all other variables.
for_serving: whether to write only what lookups need.
message: the engine's error, without TensorFlow's additions; empty if there is none.)");

}  // namespace
}  // namespace sok
