//! Functions that exist so that programs find them, and that say what is not there yet.

use super::Handle;
use crate::abi::{Code, Team};
use crate::communicator::Done;
use crate::outcome::{self, Failure};
use std::ffi::c_int;

/// Why a function does nothing.
fn not_there(what: &str) -> Result<Done, Failure> {
    Err(Failure::usage(format!("{what} is not there in this version of Ringsmith")))
}

// Arguments are left out where C's convention lets a function ignore them.
exports! {
    fn ncclCommGrow, pncclCommGrow() {
        not_there("growing a communicator (make another one with a new id)")
    }
    fn ncclCommGetUniqueId, pncclCommGetUniqueId() {
        not_there("an id for growing a communicator (ncclGetUniqueId makes one for another communicator)")
    }
    fn ncclPutSignal, pncclPutSignal() {
        not_there("one-sided writing (use ncclSend and ncclRecv)")
    }
    fn ncclSignal, pncclSignal() {
        not_there("one-sided signalling (use ncclSend and ncclRecv)")
    }
    fn ncclWaitSignal, pncclWaitSignal() {
        not_there("one-sided signalling (use ncclSend and ncclRecv)")
    }
    fn ncclCommQueryProperties, pncclCommQueryProperties() {
        not_there("the device interface")
    }
    fn ncclDevCommCreate, pncclDevCommCreate() {
        not_there("the device interface")
    }
    fn ncclDevCommDestroy, pncclDevCommDestroy() {
        not_there("the device interface")
    }
    fn ncclGetLsaMultimemDevicePointer, pncclGetLsaMultimemDevicePointer() {
        not_there("the device interface")
    }
    fn ncclGetMultimemDevicePointer, pncclGetMultimemDevicePointer() {
        not_there("the device interface")
    }
    fn ncclGetLsaDevicePointer, pncclGetLsaDevicePointer() {
        not_there("the device interface")
    }
    fn ncclGetPeerDevicePointer, pncclGetPeerDevicePointer() {
        not_there("the device interface")
    }
    fn ncclLLA2ACreateRequirement, pncclLLA2ACreateRequirement() {
        not_there("the device interface")
    }
    fn ncclLsaBarrierCreateRequirement, pncclLsaBarrierCreateRequirement() {
        not_there("the device interface")
    }
    fn ncclTeamRankToWorld, pncclTeamRankToWorld() {
        not_there("the device interface")
    }
    fn ncclTeamRankToLsa, pncclTeamRankToLsa() {
        not_there("the device interface")
    }
    fn ncclLLA2ACalcSlots, pncclLLA2ACalcSlots() {
        not_there("the device interface")
    }
}

/// A team of nobody, and the reason kept.
fn no_team(function: &str) -> Team {
    let failure = Failure {
        code: Code::InvalidUsage,
        text: "the device interface is not there in this version of Ringsmith".into(),
    };
    let kept = crate::process::without_panic(|| Ok(outcome::keep(function, &failure)));
    // Who asks for a team has no other answer than an empty one.
    let _ = kept;
    Team { ranks: 0, rank: 0, stride: 0 }
}

macro_rules! teams {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_comm: Handle) -> Team {
            no_team(stringify!($name))
        }
    )*};
}

teams! { ncclTeamWorld pncclTeamWorld ncclTeamLsa pncclTeamLsa ncclTeamRail pncclTeamRail }

/// A result code is what C takes these functions to return.
const _: () = assert!(size_of::<c_int>() == 4);
