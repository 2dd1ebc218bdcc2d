// The op that numbers keys.
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

REGISTER_OP("SokVocabularyLookup")
    .Input("keys: resource")
    .Input("counts: resource")
    .Input("slots: resource")
    .Input("size: resource")
    .Input("ids: int64")
    .Input("occurrences: int64")
    .Input("add: bool")
    .Attr("layer: string")
    .Output("numbers: int64")
    .SetIsStateful()
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(4));
      return ::tensorflow::Status();
    })
    .Doc(R"(Numbers ids in the order of their first occurrence (cc/vocabulary). One thread adds at a time.
keys: an int64 variable [max + 1].
counts: an int64 variable [max + 1].
slots: an int32 variable, as long as cc/vocabulary asks for.
size: a scalar int64 variable.
ids: of any shape.
occurrences: how often each id occurs; empty: once. Not read without `add`.
add: a scalar; whether new ids get numbers and occurrences are counted.
layer: for messages.
numbers: of the ids, 0 for those without one.)");

}  // namespace
}  // namespace sok
