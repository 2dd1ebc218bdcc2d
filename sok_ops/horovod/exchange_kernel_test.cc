// How an exchange ends: by Horovod's result, by a cancellation of its step or by an error, once, and without
// access to the kernel's context afterwards. Horovod is a list of what was passed to it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sok_ops/horovod/alltoall.h"
#include "sok_ops/horovod/horovod_queue.h"
#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

struct Horovod {
  Status enqueue_status;
  std::vector<std::shared_ptr<Alltoall>> enqueued;
};
Horovod& HorovodOfTest() {
  static auto& horovod = *new Horovod();
  return horovod;
}

}  // namespace

StatusOr<HorovodPlace> GetHorovodPlace() { return HorovodPlace{0, 1}; }
bool IsBuiltForGpus() { return false; }
Status EnqueueAlltoall(const std::string& name, std::shared_ptr<Alltoall> alltoall) {
  // The rounds of the stall watch, which then ends.
  if (name != "ids") return FailedPrecondition("the test has no rounds");
  if (HorovodOfTest().enqueue_status.ok()) HorovodOfTest().enqueued.push_back(std::move(alltoall));
  return HorovodOfTest().enqueue_status;
}

namespace {

class Cpu final : public tf::DeviceBase {
 public:
  Cpu() : DeviceBase(tf::Env::Default()) {}
  tf::Allocator* GetAllocator(tf::AllocatorAttributes /*attributes*/) override { return tf::cpu_allocator(); }
};

class ExchangeKernelTest : public testing::Test {
 protected:
  void SetUp() override {
    HorovodOfTest() = Horovod();
    tf::NodeDef node;
    const tf::Status built = tf::NodeDefBuilder("exchange", "SokExchange")
                                 .Input(tf::NodeDefBuilder::NodeOut("words", 0, tf::DT_INT64))
                                 .Input(tf::NodeDefBuilder::NodeOut("splits", 0, tf::DT_INT32))
                                 .Attr("exchange_name", "ids")
                                 .Finalize(&node);
    ASSERT_TRUE(built.ok()) << MessageOf(built);
    tf::Status status;
    kernel_ = tf::CreateOpKernel(tf::DEVICE_CPU, &device_, tf::cpu_allocator(), node, TF_GRAPH_DEF_VERSION,
                                 &status);
    ASSERT_TRUE(status.ok()) << MessageOf(status);
    words_ = tf::Tensor(tf::DT_INT64, tf::TensorShape({3}));
    for (int i = 0; i < 3; ++i) words_.vec<int64_t>()(i) = 10 + i;
    splits_ = tf::Tensor(tf::DT_INT32, tf::TensorShape({1}));
    splits_.vec<int32_t>()(0) = 2;
  }

  // Starts an exchange of two words. The context is destroyed when it ends, as in a session.
  void Start(tf::CancellationManager* manager) {
    inputs_ = {tf::TensorValue(&words_), tf::TensorValue(&splits_)};
    params_ = std::make_unique<tf::OpKernelContext::Params>();
    params_->device = &device_;
    params_->op_kernel = kernel_.get();
    params_->inputs = inputs_;
    params_->output_attr_array = attributes_;
    params_->cancellation_manager = manager;
    context_ = std::make_unique<tf::OpKernelContext>(params_.get());
    kernel_->AsAsync()->ComputeAsync(context_.get(), [this] {
      ++ends_;
      end_ = context_->status();
      for (int i = 0; end_->ok() && i < 2; ++i) outputs_.push_back(*context_->mutable_output(i));
      for (int i = 0; i < 2; ++i) delete context_->release_output(i).tensor;
      context_.reset();
      params_.reset();
    });
  }
  Alltoall* enqueued() const {
    return HorovodOfTest().enqueued.empty() ? nullptr : HorovodOfTest().enqueued[0].get();
  }
  // What Horovod does when two words have arrived.
  void Receive() {
    Alltoall* const alltoall = enqueued();
    const StatusOr<int64_t*> words = alltoall->AllocateReceived(2);
    ASSERT_TRUE(words.ok());
    for (int i = 0; i < 2; ++i) words.value()[i] = alltoall->words()[i];
    const StatusOr<int32_t*> splits = alltoall->AllocateReceivedSplits(1);
    ASSERT_TRUE(splits.ok());
    splits.value()[0] = alltoall->splits()[0];
    alltoall->Done(OkStatus());
  }
  void ExpectEnd(tf::error::Code code, const std::string& text) {
    ASSERT_EQ(ends_, 1);
    EXPECT_EQ(static_cast<int>(end_->code()), static_cast<int>(code));
    EXPECT_NE(MessageOf(*end_).find("exchange 'ids'"), std::string::npos) << MessageOf(*end_);
    EXPECT_NE(MessageOf(*end_).find(text), std::string::npos) << MessageOf(*end_);
  }

  Cpu device_;
  std::unique_ptr<tf::OpKernel> kernel_;
  tf::Tensor words_, splits_;
  std::vector<tf::TensorValue> inputs_;
  tf::AllocatorAttributes attributes_[2];
  std::unique_ptr<tf::OpKernelContext::Params> params_;
  std::unique_ptr<tf::OpKernelContext> context_;
  int ends_ = 0;
  std::optional<tf::Status> end_;
  std::vector<tf::Tensor> outputs_;
};

TEST_F(ExchangeKernelTest, EndsWithHorovodsResult) {
  tf::CancellationManager manager;
  for (tf::CancellationManager* const with : {&manager, static_cast<tf::CancellationManager*>(nullptr)}) {
    HorovodOfTest().enqueued.clear();
    outputs_.clear();
    ends_ = 0;
    Start(with);
    ASSERT_NE(enqueued(), nullptr);
    EXPECT_EQ(ends_, 0);
    ASSERT_NO_FATAL_FAILURE(Receive());
    ASSERT_EQ(ends_, 1);
    ASSERT_TRUE(end_->ok()) << MessageOf(*end_);
    EXPECT_EQ(outputs_[0].shape(), tf::TensorShape({2}));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(outputs_[0].vec<int64_t>()(i), 10 + i);
    EXPECT_EQ(outputs_[1].vec<int32_t>()(0), 2);
    // Otherwise its words would stay in memory until the step ends.
    EXPECT_EQ(HorovodOfTest().enqueued[0].use_count(), 1) << "the step does not hold it";
  }
  // The context is gone, so nothing may be left to call.
  manager.StartCancel();
  EXPECT_EQ(ends_, 1);
}

TEST_F(ExchangeKernelTest, AStepThatIsCancelledAlreadyEndsAtOnce) {
  tf::CancellationManager manager;
  manager.StartCancel();
  Start(&manager);
  ExpectEnd(tf::error::CANCELLED, "ended by an error elsewhere");
  EXPECT_EQ(enqueued(), nullptr) << "the other ranks do not wait for it";
}

TEST_F(ExchangeKernelTest, ACancellationEndsItWhileHorovodHasItsMemory) {
  tf::CancellationManager manager;
  Start(&manager);
  ASSERT_NE(enqueued(), nullptr);
  EXPECT_EQ(ends_, 0);
  manager.StartCancel();
  ASSERT_NO_FATAL_FAILURE(ExpectEnd(tf::error::CANCELLED, "ended by an error elsewhere"));
  // The step is over, and so are its tensors.
  words_ = splits_ = tf::Tensor();
  ASSERT_NO_FATAL_FAILURE(Receive());
  EXPECT_EQ(ends_, 1);
}

TEST_F(ExchangeKernelTest, HorovodsErrorEndsIt) {
  tf::CancellationManager manager;
  Start(&manager);
  ASSERT_NE(enqueued(), nullptr);
  enqueued()->Done(Internal("a peer is gone"));
  ASSERT_NO_FATAL_FAILURE(ExpectEnd(tf::error::INTERNAL, "on rank 0 of 1 failed: a peer is gone"));
  manager.StartCancel();
  EXPECT_EQ(ends_, 1);
}

TEST_F(ExchangeKernelTest, AnExchangeThatHorovodRefusesEnds) {
  HorovodOfTest().enqueue_status = FailedPrecondition("Horovod has shut down");
  tf::CancellationManager manager;
  Start(&manager);
  ExpectEnd(tf::error::FAILED_PRECONDITION, "Horovod has shut down");
  manager.StartCancel();
  EXPECT_EQ(ends_, 1);
}

}  // namespace
}  // namespace sok
